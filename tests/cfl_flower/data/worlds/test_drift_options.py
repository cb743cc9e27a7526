"""The options of looks, gradual changes and several drifts run, and are resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cfl_flower as cfl
from cfl_flower.config.compose import compose_config

AT = "drift.rounds=[2,4]"
OPTIONS = {
    "noise": [AT],
    "test_time": [AT],
    "gradual": ["drift.rounds=[2]", "drift.width=3"],
    "recurring_covariate": ["drift.first=2", "drift.every=1"],
    "[sudden,noise]": [
        *("drift.steps.sudden.rounds=[3]", "drift.steps.noise.rounds=[2]"),
    ],
}


def losses(
    path: Path, drift: str, rounds: int, strategy: str, resume: bool = False
) -> list[float]:
    run = cfl.run(
        f"drift={drift}",
        *OPTIONS[drift],
        strategy=strategy,
        partition="iid",
        rounds=rounds,
        clients=6,
        participants=3,
        engine="inprocess",
        faults__strict=True,
        resume=resume,
        output_dir=path,
    )
    found: list[float] = run.rounds["loss"].tolist()
    return found


@pytest.mark.parametrize("drift", OPTIONS)
def test_a_run_of_four_rounds_is_that_of_two_and_two(
    drift: str, tmp_path: Path
) -> None:
    # FedDrift keeps how the samples of earlier rounds looked.
    whole = losses(tmp_path / "whole", drift, 4, "feddrift")
    losses(tmp_path / "parts", drift, 2, "feddrift")
    parts = losses(tmp_path / "parts", drift, 4, "feddrift", resume=True)
    assert len(whole) == 4
    assert parts == whole
    names = ("whole", "parts")
    texts = [(tmp_path / name / "summary.json").read_text() for name in names]
    assert json.loads(texts[0])["data"] == json.loads(texts[1])["data"]


def test_several_drifts_are_each_as_alone() -> None:
    asked = ["drift=[recurring,noise]", "partition=iid", "drift.steps.noise.width=2"]
    both = compose_config([*asked, "drift.steps.recurring.rounds=[5,9]"])
    assert both.names["drift"] == "recurring+noise"
    timeline = both.timeline
    assert timeline.changes == [5, 9, 13, 14, 25, 26]
    alone = compose_config(["drift=noise", "partition=iid"]).timeline
    assert (timeline.world(14).looks == alone.world(14).looks).all()
    swapped = compose_config(["drift=sudden", "partition=iid", "drift.rounds=[5]"])
    now = timeline.world(5)
    assert (now.relabel == swapped.timeline.world(5).relabel).all()
    assert (timeline.concepts(30) == timeline.concepts(1)).all()


def test_a_file_may_have_several_drifts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "conf" / "drift"
    folder.mkdir(parents=True)
    target = "_target_: cfl_flower.data.worlds.drift.Schedule"
    steps = "steps:\n  noise:\n    rounds: [7]"
    parts = "defaults: [rotate@steps.rotate, noise@steps.noise, _self_]"
    (folder / "both.yaml").write_text("\n".join(["# Both.", parts, target, steps]))
    monkeypatch.chdir(tmp_path)
    assert compose_config(["drift=both"]).timeline.changes == [7, 13, 25]

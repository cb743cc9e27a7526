"""The options of looks, gradual changes and several drifts run, and are resumed."""

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
def test_a_run_of_four_rounds_is_that_of_two_and_two(drift, tmp_path):
    # FedDrift keeps how the samples of earlier rounds looked.
    whole = losses(tmp_path / "whole", drift, 4, "feddrift")
    losses(tmp_path / "parts", drift, 2, "feddrift")
    parts = losses(tmp_path / "parts", drift, 4, "feddrift", resume=True)
    assert len(whole) == 4
    assert parts == whole
    names = ("whole", "parts")
    texts = [(tmp_path / name / "summary.json").read_text() for name in names]
    assert json.loads(texts[0])["data"] == json.loads(texts[1])["data"]


def test_a_file_may_have_several_drifts(tmp_path, monkeypatch):
    folder = tmp_path / "conf" / "drift"
    folder.mkdir(parents=True)
    target = "_target_: cfl_flower.data.worlds.drift.Schedule"
    steps = "steps:\n  noise:\n    rounds: [7]"
    parts = "defaults: [rotate@steps.rotate, noise@steps.noise, _self_]"
    (folder / "both.yaml").write_text("\n".join(["# Both.", parts, target, steps]))
    of_both = "rounds: [5]\nwidth: 1"
    twice = parts.replace("rotate@steps.rotate", "sudden@steps.sudden")
    (folder / "twice.yaml").write_text("\n".join([twice, of_both, target, steps]))
    monkeypatch.chdir(tmp_path)
    assert compose_config(["drift=both"]).timeline.changes == [7, 13, 25]
    assert compose_config(["drift=twice"]).timeline.changes == [5, 7]

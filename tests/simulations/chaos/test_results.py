"""A difference between two runs is found, and named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from simulations.chaos.results import differences, lost_results

ROUND = {
    **{"round": 1, "accuracy": 0.5, "accuracy_mean": 0.5, "seconds": 1.0},
    **{"failures": [], "cluster_sizes": [2], "bytes_up": 8, "bytes_down": 8},
}
TEST = {"round": 1, "client": 0, "cluster": 0, "accuracy": 0.5, "num_examples": 4}


def saved_run(folder: Path, row: dict[str, object], weight: float = 1.0) -> Path:
    """Return a folder with a run of one round and its checkpoint."""
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "rounds.jsonl").write_text(json.dumps({**ROUND, **row}) + "\n")
    (folder / "clients.jsonl").write_text(json.dumps(TEST) + "\n")
    model = {"model": np.full(3, weight, np.float32)}
    save_file(model, folder / "checkpoint" / "round-00000001.safetensors")
    return folder


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return saved_run(tmp_path / "reference", {})


def test_runs_that_differ_in_seconds_alone_are_equal(
    tmp_path: Path, reference: Path
) -> None:
    assert not differences(reference, saved_run(tmp_path / "same", {"seconds": 7.0}))


def test_a_difference_is_named(tmp_path: Path, reference: Path) -> None:
    other = saved_run(tmp_path / "other", {"accuracy": 0.25})
    assert differences(reference, other) == ["rounds.jsonl: line 1 differs in accuracy"]
    model = saved_run(tmp_path / "model", {}, weight=2.0)
    assert differences(reference, model) == ["checkpoint: other models"]
    (other / "rounds.jsonl").write_text("")
    assert differences(reference, other)[0] == "rounds.jsonl: 0 rows instead of 1"


def test_lost_results_are_failures_beyond_the_references(
    tmp_path: Path, reference: Path
) -> None:
    told = {"phase": "train", "reason": "raised", "detail": "an error"}
    failed = {"failures": [{"client": client, **told} for client in (1, 2)]}
    assert lost_results(reference, saved_run(tmp_path / "lost", failed)) == 2
    assert lost_results(reference, reference) == 0

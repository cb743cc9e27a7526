from __future__ import annotations

from pathlib import Path

from cfl_flower.types import Result
from tests.conftest import Runner, open_method


def test_who_says_nothing_has_as_many_samples_as_before(tmp_path: Path) -> None:
    method = open_method(tmp_path, "strategy=fedavg")
    method.state.clients = list(range(5))
    method.state.empty = [0, 1]
    told = [Result(0, 1), Result(2, 1, metrics={"empty": True}), Result(4, 1)]
    method.engine.measures.note_empty(told)
    assert method.state.empty == [1, 2]


def test_the_last_round_is_tested_in_any_case(run_small: Runner) -> None:
    run = run_small("strategy=fedavg", "system.evaluate_every=3", "rounds=5")
    tested = [row["round"] for row in run.rounds if row["accuracy"] is not None]
    assert tested == [3, 5]

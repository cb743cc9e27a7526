"""Columns of tables."""

from __future__ import annotations

from cfl_flower.analysis.drift_metrics import score
from cfl_flower.analysis.scorecards import COSTS, cell, score_table


def test_epsilon_has_a_column_where_it_was_measured() -> None:
    common = {"accuracy": 0.5, "bytes_up": 1, "bytes_down": 1}
    rounds = [{"round": t, **common} for t in (1, 2)]
    plain = score(rounds, [])
    measured = [row | {"epsilon": 2.0 * row["round"]} for row in rounds]
    private = score(measured, [])
    assert plain.epsilon is None
    headings = [
        score_table("cost", {"fedavg": {0: each}}, COSTS).headings
        for each in (plain, private)
    ]
    assert "epsilon" not in headings[0]
    assert headings[1][-1] == "epsilon"
    # Of the last round, by which all that was sent has been counted.
    assert cell([private, private], COSTS[-1]) == "4 ± 0"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Runner = Callable[..., Any]


def test_it_starts_as_fielding_and_never_moves(run_small: Runner) -> None:
    static = run_small("strategy=static", folder="static")
    fielding = run_small("strategy=fielding", folder="fielding")
    clusters = {row["client"]: row["cluster"] for row in fielding.clients[:12]}
    assert all(row["cluster"] == clusters[row["client"]] for row in static.clients)
    assert static.rounds[0]["accuracy"] == fielding.rounds[0]["accuracy"]
    assert static.rounds[1]["ari"] == 1
    assert static.rounds[2]["ari"] < 1


def test_what_it_does_not_know_is_null(run_small: Runner) -> None:
    run = run_small("strategy=static")
    for key in ("drifted", "moved", "reclustered", "heterogeneity"):
        assert {row[key] for row in run.rounds} == {None}


def test_it_asks_for_histograms_only_once(run_small: Runner) -> None:
    run = run_small("strategy=static")
    model, histograms = 6 * 650 * 4, 12 * 10 * 4
    assert [row["bytes_up"] for row in run.rounds] == [model + histograms] + [model] * 3

"""The charts of a page that compare methods: who leads."""

from dataclasses import replace

import pytest

from cfl_flower.analysis.saved import SavedRun, load_run
from simulations.reporting.charts import GREY
from simulations.reporting.curves import curves, find_leaders
from simulations.reporting.sections import Stream, divide
from tests.conftest import Runner


@pytest.fixture(scope="module")
def run(undisturbed: Runner) -> SavedRun:
    """A finished run with a drift before round 3."""
    return load_run(undisturbed("strategy=fedavg").folder)


def stream_of(run: SavedRun, *methods: str) -> Stream:
    """Return three seeds of methods, each a point more accurate than the one before."""
    runs = []
    for place, method in enumerate(methods):
        settings = {**run.resolved["strategy"], "name": method}
        for seed in range(3):
            better = 0.01 * place + 0.001 * seed
            rounds = [{**r, "accuracy": r["accuracy"] + better} for r in run.rounds]
            own = {**run.resolved, "strategy": settings, "seed": seed}
            runs.append(replace(run, resolved=own, rounds=rounds))
    (stream,) = divide(runs)
    return stream


def test_references_are_grey_and_the_best_of_many_stand_out(run):
    stream = stream_of(run, "fedavg", "a", "b", "c", "d", "e", "oracle")
    assert find_leaders(stream.begun) == ["e", "d", "c"]
    styles = {line.label: (line.colour, tuple(line.dashes)) for line in stream.begun}
    assert styles["fedavg"] == (GREY, (6, 3))
    assert styles["oracle"][0] == GREY
    assert len({styles[name][0] for name in "abcde"} - {GREY}) == 5
    chart = curves(stream.begun, "accuracy", "accuracy", percent=True)
    tests = {
        each["mark"]["type"]: each["encoding"]["opacity"]["condition"]["test"]
        for each in chart.layers
        if "opacity" in each["encoding"] and each["mark"]["type"] in ("area", "line")
    }
    assert "indexof(['e', 'd', 'c', 'fedavg', 'oracle'], datum.method)" in tests["line"]
    # Bands of many are mud: that of an isolated method is shown.
    assert tests["area"].startswith("isolated === null ? false")

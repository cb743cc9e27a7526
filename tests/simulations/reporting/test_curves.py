"""The charts of a page that compare methods: who leads."""

from cfl_flower.analysis.saved import SavedRun
from simulations.reporting.charts import GREY
from simulations.reporting.curves import curves, find_leaders
from simulations.reporting.sections import Stream, divide
from tests.simulations.conftest import changed


def stream_of(run: SavedRun, *methods: str) -> Stream:
    """Return three seeds of methods, each a point more accurate than the one before."""
    (stream,) = divide(
        [
            changed(run, 0.01 * place + 0.001 * seed, method, seed=seed)
            for place, method in enumerate(methods)
            for seed in range(3)
        ]
    )
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

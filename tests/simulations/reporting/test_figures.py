"""Charts that compare methods: a style for each, its mean, its spread, its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cfl_flower.analysis.saved import SavedRun, load_run
from simulations.reporting.charts import DARK, Spec
from simulations.reporting.figures import DASHES, LINES, Line, accuracy, traffic
from tests.conftest import Runner


@pytest.fixture
def run(undisturbed: Runner) -> SavedRun:
    """A finished run with a drift before round 3."""
    return load_run(undisturbed("strategy=fedavg").folder)


def changed(run: SavedRun, by: float) -> SavedRun:
    """Return a run as another seed might have it."""
    rounds = [{**row, "accuracy": row["accuracy"] + by} for row in run.rounds]
    return replace(run, rounds=rounds)


def marks(spec: Spec, kind: str) -> list[Spec]:
    """Return the layers of a kind of mark."""
    return [each for each in spec["layer"] if each["mark"]["type"] == kind]


def test_no_two_methods_look_alike() -> None:
    count = len(LINES) * len(DASHES)
    lines = [Line(str(number), (), number) for number in range(count)]
    assert len({(line.colour, *line.dashes) for line in lines}) == count
    # Nor in the dark, where light colours are as they are.
    assert len({DARK.get(colour, colour) for colour in LINES}) == len(LINES)


def test_line_is_the_mean_over_seeds_in_a_band_of_their_deviation(
    run: SavedRun,
) -> None:
    seeds = Line("two seeds", [run, changed(run, 0.02)], 0)
    spec = accuracy([seeds, Line("one", [run], 1)]).spec
    first = spec["data"]["values"][0]
    low = run.rounds[0]["accuracy"]
    assert first["mean"] == pytest.approx(low + 0.01, abs=1e-5)
    assert first["high"] - first["mean"] == pytest.approx(0.02 / 2**0.5, abs=1e-5)
    assert first["shown"] == f"{100 * low + 1:.1f} ± 1.4%"
    (band,) = marks(spec, "area")
    assert band["encoding"]["color"] == marks(spec, "line")[0]["encoding"]["color"]
    (shade,) = marks(spec, "rect")
    assert shade["data"]["values"] == [{"round": 2.5, "end": 3.5}]


def test_names_stand_at_the_ends_of_lines_apart(run: SavedRun) -> None:
    lines = [Line(name, [run], number) for number, name in enumerate("abc")]
    for draw in (accuracy, traffic):
        (names,) = marks(draw(lines).spec, "text")
        low, high = names["encoding"]["y"]["scale"]["domain"]
        places = [row["place"] for row in names["data"]["values"]]
        assert [row["method"] for row in names["data"]["values"]] == ["a", "b", "c"]
        assert places[1] - places[0] > 0.05 * (high - low)


def test_file_of_a_chart_has_no_points_that_wait_for_a_pointer(run: SavedRun) -> None:
    chart = accuracy([Line("one", [run], 0)])
    assert len(marks(chart.spec, "point")) == 1
    assert "mark-line" in chart.svg
    assert "mark-symbol" not in chart.svg

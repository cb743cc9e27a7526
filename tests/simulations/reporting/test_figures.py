"""Charts that compare methods: a style for each, its mean, its spread, its name."""

import pytest
from PIL import Image

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.errors import ConfigError
from simulations.reporting.charts import DARK, Chart, Spec
from simulations.reporting.curves import curves
from simulations.reporting.figures import (
    DASHES,
    LINES,
    Line,
    Lines,
    Picture,
    printed,
    read_names,
)
from tests.simulations.conftest import changed


def accuracy(lines: Lines) -> Chart:
    return curves(lines, "accuracy", "accuracy", percent=True)


def marks(spec: Spec, kind: str) -> list[Spec]:
    return [each for each in spec["layer"] if each["mark"]["type"] == kind]


def test_no_two_methods_look_alike():
    count = len(LINES) * len(DASHES)
    lines = [Line(str(number), (), number) for number in range(count)]
    assert len({(line.colour, *line.dashes) for line in lines}) == count
    # Nor in the dark, where light colours are as they are.
    assert len({DARK.get(colour, colour) for colour in LINES}) == len(LINES)


def test_line_is_the_mean_over_seeds_in_a_band_of_their_deviation(run):
    seeds = Line("two seeds", [run, changed(run, 0.02)], 0)
    spec = accuracy([seeds, Line("one", [run], 1)]).spec
    first = spec["data"]["values"][0]
    low = run.rounds[0]["accuracy"]
    assert first["mean"] == pytest.approx(low + 0.01, abs=1e-5)
    around = [first["high"] - first["mean"], first["mean"] - first["low"]]
    assert around == pytest.approx([0.02 / 2**0.5] * 2, abs=1e-5)
    assert first["shown"] == f"{100 * low + 1:.1f} ± 1.4%"
    (band,) = marks(spec, "area")
    assert band["encoding"]["color"] == marks(spec, "line")[0]["encoding"]["color"]
    (shade,) = marks(spec, "rect")
    # A thin line, which hides nothing.
    assert shade["data"]["values"] == [{"round": 2.5, "end": pytest.approx(2.51)}]


def test_names_stand_at_the_ends_of_lines_apart(run):
    lines = [Line(name, [run], number) for number, name in enumerate("abc")]
    (names,) = marks(accuracy(lines).spec, "text")
    low, high = names["encoding"]["y"]["scale"]["domain"]
    places = [row["place"] for row in names["data"]["values"]]
    assert [row["method"] for row in names["data"]["values"]] == ["a", "b", "c"]
    assert places[1] - places[0] > 0.05 * (high - low)


@pytest.mark.parametrize(("width", "points"), [("single", 252), (5.5, 396)])
def test_a_printed_chart_has_the_width_the_fonts_and_the_dots_of_paper(
    width, points, run, tmp_path
):
    chart = accuracy([Line("one", [run], 0), Line("two", [run], 1)])
    Picture("accuracy", "", chart).save(tmp_path / "new", width)
    pdf = (tmp_path / "new" / "accuracy.pdf").read_bytes()
    assert f"/MediaBox [0 0 {points} ".encode() in pdf
    assert b"/FontFile" in pdf  # its fonts are in it
    assert f'width="{points}pt"' in (tmp_path / "new" / "accuracy.svg").read_text()
    with Image.open(tmp_path / "new" / "accuracy.png") as png:
        assert png.width == pytest.approx(points / 72 * 300, abs=1)
        assert png.info["dpi"] == pytest.approx((300, 300), abs=0.1)


NAMES = ["fedavg", "one", "two", "three", "four"]


def lines_of(run: SavedRun, count: int) -> list[Line]:
    return [
        Line(name, [changed(run, 0.01 * n + by, name) for by in (0, 0.02)], n)
        for n, name in enumerate(NAMES[:count])
    ]


@pytest.mark.parametrize("count", [2, 4, 5])
def test_many_methods_have_no_bands_on_paper(count, run):
    chart = accuracy(lines_of(run, count))
    layers = printed(chart)
    kinds = [each["mark"]["type"] for each in layers]
    assert ("area" in kinds) == (count < 5)
    assert "text" in kinds
    (line,) = [each for each in layers if each["mark"]["type"] == "line"]
    assert "opacity" not in line["encoding"]
    # The dashes of a reference are above the lines that they meet.
    assert chart.rows[-1]["method"] == "fedavg"
    assert line["encoding"]["color"]["scale"]["domain"] == NAMES[:count]


@pytest.mark.parametrize("width", ["triple", 1])
def test_what_is_not_printed_is_one_line(width, run, tmp_path):
    picture = Picture("x", "", accuracy([Line("one", [run], 0)]))
    with pytest.raises(ConfigError, match=f"width={width} is not allowed; use single"):
        picture.save(tmp_path, width)
    assert not any(tmp_path.iterdir())


def test_a_label_with_settings_takes_a_name_as_others_do():
    known = ["ifca clusters=3", "ifca", "fedavg"]
    words = ["ifca clusters=3=Ours", "ifca=IFCA", "fedavg"]
    found = {"ifca clusters=3": "Ours", "ifca": "IFCA", "fedavg": "fedavg"}
    assert read_names(words, known) == found
    assert read_names(known[:1], known) == {known[0]: known[0]}
    with pytest.raises(ConfigError, match="methods=fedprox is not allowed; use some"):
        read_names(["fedprox"], known)

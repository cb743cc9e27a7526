"""Charts that compare methods, each line the mean over a method's seeds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import sqrt
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import vl_convert

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.settings import require
from cfl_flower.types import FloatArray
from simulations.reporting.charts import (
    CONFIG,
    GREY,
    WIDTH,
    Chart,
    Spec,
    layer,
    number,
    rounds_axis,
)

# Lines on white need contrast: 3 to 1 for the first seven.
LINES = (
    *("#332288", "#CC6677", "#117733", "#AA4499", "#882255"),
    *("#999933", "#2E8B7B", "#88CCEE", "#DDCC77"),
)
DASHES = ([1, 0], [6, 3], [2, 2], [6, 3, 2, 3])
REFERENCES = {"fedavg": [6, 3], "fedavg_ft": [3, 1]}
REFERENCES |= {"local": [2, 2], "oracle": [8, 3, 2, 3]}
"""Methods that others are measured by, and the dashes of their grey lines."""
HEIGHT = 330
MOST_MARKS = 40
"""Drifts that are marked in a picture."""
GAP = 0.06
"""Between the labels of lines, as a share of the axes' height."""
MARGIN = 0.04
"""Above and below the lines, as a share of what they span."""

COLUMNS = {"single": 3.5, "double": 7.16}
"""Inches of a column and of both, in journals of the IEEE; Nature's are 3.5 and 7.2."""
NARROW = 5.0
"""Inches below which the names of lines are a legend below them."""
MOST_BANDS = 4
"""Methods whose spreads are shown together: more of them hide each other."""
NAMES = ("rule", "text")
"""The marks that name lines."""
LEGEND = {"orient": "bottom", "title": None, "columns": 3, "symbolType": "stroke"}


@dataclass(frozen=True)
class Format:
    """How charts are printed."""

    width: str | float = "double"
    """One of `COLUMNS`, or inches."""
    font: str = CONFIG["font"]
    """A family of fonts; after commas others that take its place if it is missing."""
    size: float = 8.0
    """Points of its letters."""

    def __post_init__(self) -> None:
        """Raise a `ConfigError` for what is not printed."""
        allowed = f"{', '.join(COLUMNS)} or inches from 2 to 20"
        require(2 <= self.inches <= 20, "width", self.width, allowed)
        require(5 <= self.size <= 14, "size", self.size, "points from 5 to 14")

    @property
    def inches(self) -> float:
        """The width in inches; 0 if it is none."""
        try:
            return float(COLUMNS.get(str(self.width), self.width))
        except ValueError:
            return 0.0

    def layers(self, chart: Chart) -> list[Spec]:
        """Return what is printed: without bands of many, and names where it is narrow.

        These are in a legend below then.
        """
        methods = {row.get("method") for row in chart.rows}
        narrow = len(methods) > 1 and self.inches < NARROW
        hidden = dict.fromkeys(NAMES, narrow) | {"area": len(methods) > MOST_BANDS}
        still = [each for each in chart.layers if "params" not in each]
        kept = [each for each in still if not hidden.get(each["mark"]["type"])]
        return [_with_legend(each) for each in kept] if narrow else kept

    def save(self, chart: Chart, folder: str | Path, name: str) -> None:
        """Write a chart as PDF, SVG and PNG into a folder, made if it is not there.

        All of it is as much smaller or larger than in a page as its letters are.
        `ConfigError` for a font that is not on this machine.
        """
        points = 72 * self.inches
        scale = self.size / CONFIG["axis"]["titleFontSize"]
        width = points / scale
        height = chart.height * sqrt(width / WIDTH)
        spec = {**chart.spec, "layer": self.layers(chart), "width": width}
        spec |= {"height": height, "config": {**CONFIG, "font": self.font}}
        svg = vl_convert.vegalite_to_svg(spec)

        def sized(unit: str) -> str:
            size = f'width="{points:g}{unit}" height="{scale * height:g}{unit}"'
            return re.sub(r'width="[\d.]+" height="[\d.]+"', size, svg, count=1)

        # What makes the other files takes a pixel for a point.
        pdf = vl_convert.svg_to_pdf(sized(""))
        # Words would be left out without a word.
        known = "serif, sans-serif, monospace or what `fc-list : family` lists"
        require(b"/BaseFont" in pdf, "font", self.font, known)
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".pdf").write_bytes(pdf)
        path.with_suffix(".svg").write_text(sized("pt"), encoding="utf-8")
        png = vl_convert.svg_to_png(sized(""), ppi=300)
        path.with_suffix(".png").write_bytes(png)


@dataclass(frozen=True)
class Line:
    """A method as pictures show it: the runs of its seeds, and its colour."""

    label: str
    runs: Sequence[SavedRun]
    number: int
    """Its place among the methods of the page, which all pictures colour alike."""

    @property
    def is_reference(self) -> bool:
        """Whether others are measured by it: its line is grey and dashed."""
        return bool(self.runs) and self.runs[0].strategy in REFERENCES

    @property
    def colour(self) -> str:
        """The line's colour, as that of no other of the first nine."""
        return GREY if self.is_reference else LINES[self.number % len(LINES)]

    @property
    def dashes(self) -> list[int]:
        """The line's dashes, which tell methods of one colour apart."""
        if self.is_reference:
            return REFERENCES[self.runs[0].strategy]
        return DASHES[self.number // len(LINES) % len(DASHES)]

    def series(self, key: str) -> tuple[FloatArray, FloatArray]:
        """Return the rounds in which all seeds measured a number, and the numbers.

        Shapes (n,) and (seeds, n).
        """
        found = [run.series(key) for run in self.runs]
        rounds = reduce(np.intersect1d, [rounds for rounds, _ in found])
        values = [numbers[np.isin(own, rounds)] for own, numbers in found]
        return rounds.astype(float), np.array(values)

    def sent(self, rounds: FloatArray) -> FloatArray:
        """Return the megabytes sent by the end of rounds, the mean over seeds."""
        total = np.zeros(len(rounds))
        for run in self.runs:
            sent = np.cumsum([r["bytes_up"] + r["bytes_down"] for r in run.rounds])
            total += sent[np.isin([r["round"] for r in run.rounds], rounds)]
        return total / len(self.runs) / 1e6


Lines = Sequence[Line]
Row: TypeAlias = dict[str, Any]


def choose(lines: Lines, names: Mapping[str, str]) -> list[Line]:
    """Return the lines of methods as they are named, in the order of names, or all."""
    if not names:
        return list(lines)
    found = {line.label: line for line in lines}
    return [replace(found[each], label=names[each]) for each in names if each in found]


def read_names(words: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """Read METHOD or METHOD=NAME: which methods are shown, and what they are called.

    Examples
    --------
    >>> read_names(["ifca", "fedavg=FedAvg"], ["fedavg", "ifca", "local"])
    {'ifca': 'ifca', 'fedavg': 'FedAvg'}
    """
    allowed = f"some of {', '.join(dict.fromkeys(labels))}, or METHOD=NAME of one"
    found = {}
    for word in words:
        label, _, name = word.rpartition("=")
        if word in labels:  # which have the sign, too, where settings differ
            label = word
            name = word
        require(label in labels, "methods", word, allowed)
        found[label] = name
    return found


def curves(lines: Lines, key: str, label: str, percent: bool = False) -> Chart:
    """Draw one number over the rounds: each method's mean over seeds, and its spread.

    The band is a standard deviation on either side; grey lines stand before
    the rounds whose tests are the first on changed data, if all runs have the same.
    """
    rows = _rows(lines, key, percent)
    done = [row["round"] for row in rows]
    last = max(done)
    changes = {tuple(run.tested_drifts) for line in lines for run in line.runs}
    drifts = next(iter(changes)) if len(changes) == 1 else ()
    if len(drifts) > MOST_MARKS:
        drifts = ()
    # As wide as a line, on any paper.
    thin = (last - min(done)) / 300
    shades = [{"round": each - 0.5, "end": each - 0.5 + thin} for each in drifts]
    x = rounds_axis(min(done), last)
    around = {"x": x, "x2": {"field": "end"}}
    shaded = layer("rect", around, shades, color=GREY, opacity=0.4)
    y: Row = {"title": label}
    if percent:
        y |= {"format": ".0%"}
    elif key == "num_clusters":
        y |= {"format": "d", "tickMinStep": 1}
    return Chart(rows, [shaded, *_draw(lines, rows, x, y)], HEIGHT)


def accuracy(lines: Lines) -> Chart:
    """Draw the accuracy over all samples."""
    return curves(lines, "accuracy", "accuracy over all samples", percent=True)


def traffic(lines: Lines) -> Chart:
    """Draw the accuracy over the bytes sent so far, both ways."""
    rows = _rows(lines, "accuracy", percent=True)
    span = (0.0, max(row["megabytes"] for row in rows))
    x = number("megabytes", span, title="megabytes sent, up and down", grid=False)
    y = {"title": "accuracy over all samples", "format": ".0%"}
    return Chart(rows, _draw(lines, rows, x, y), HEIGHT)


def _rows(lines: Lines, key: str, percent: bool) -> list[Row]:
    """Return what is drawn, references last: their dashes hide no line below them."""
    behind = sorted(lines, key=attrgetter("is_reference"))
    return [row for line in behind for row in _measured(line, key, percent)]


def _measured(line: Line, key: str, percent: bool = False) -> Iterator[Row]:
    """Yield a method's mean and spread in each round, and what tells of them."""
    rounds, values = line.series(key)
    means = values.mean(axis=0)
    several = len(values) > 1
    spreads = values.std(axis=0, ddof=1) if several else np.zeros(len(rounds))
    pattern, unit = ("{:.1f}", 100) if percent else ("{:.4g}", 1)
    for server_round, mean, spread, sent in zip(
        rounds, means, spreads, line.sent(rounds), strict=True
    ):
        parts = [mean, spread] if several else [mean]
        shown = " ± ".join(pattern.format(unit * part) for part in parts)
        yield {
            "method": line.label,
            "round": int(server_round),
            "mean": _rounded(mean),
            "low": _rounded(mean - spread),
            "high": _rounded(mean + spread),
            "megabytes": _rounded(sent),
            "shown": shown + "%" * percent,
            "sent": f"{sent:.2f} MB",
        }


def _with_legend(drawn: Spec) -> Spec:
    """Return a layer with a legend of the colours and dashes that have none."""
    channels = drawn["encoding"].items()
    legend = {k: {**v, "legend": LEGEND} for k, v in channels if "legend" in v}
    return {**drawn, "encoding": {**drawn["encoding"], **legend}}


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _draw(lines: Lines, rows: Sequence[Row], x: Spec, axis: Row) -> list[Spec]:
    """Return bands, lines, the names at their ends, and what tells their values."""
    low = min(row["low"] for row in rows)
    high = max(row["high"] for row in rows)
    room = MARGIN * (high - low) or 0.5
    domain = (low - room, high + room)
    y = number("mean", domain, **axis)
    names = [line.label for line in lines]
    colours, patterns = zip(
        *((line.colour, line.dashes) for line in lines), strict=True
    )
    colour, dashes = (
        {"field": "method", "scale": {"domain": names, "range": each}, "legend": None}
        for each in (colours, patterns)
    )
    several = any(len(line.runs) > 1 for line in lines)
    band = {"x": x, "y": number("low", domain), "y2": {"field": "high"}}
    found = [
        layer("area", {**band, "color": colour}, opacity=0.15) for _ in range(several)
    ]
    place = {"x": x, "y": y, "color": colour}
    style = {"color": colour, "strokeDash": dashes}
    found.append(layer("line", {**place, **style}, strokeWidth=2))
    ends = {row["method"]: {**row} for row in rows}
    if len(ends) > 1:
        found += _label(list(ends.values()), x, domain, style)
    return [*found, _tell(place, axis["title"])]


def _label(
    ends: Sequence[Row], x: Spec, domain: tuple[float, float], style: Spec
) -> list[Spec]:
    """Name each line where it ends, beside a piece of it, the names apart."""
    low, high = domain
    ends = sorted(ends, key=lambda end: end["mean"])
    heights = [(end["mean"] - low) / (high - low) for end in ends]
    for end, place in zip(ends, spread_out(heights, GAP), strict=True):
        end["place"] = low + place * (high - low)
    y = number("mean", domain)
    right = {"value": "width"}
    there = {"x": right, "y": {**y, "field": "place"}}
    leader = {"x": x, "y": y, "x2": right, "y2": {"field": "place"}}
    leader["color"] = style["color"]
    sample = {**there, "x2": right, **style}
    name = {**there, "text": {"field": "method"}}
    return [
        layer("rule", leader, ends, x2Offset=10, strokeWidth=1, strokeDash=[1, 2]),
        layer("rule", sample, ends, xOffset=10, x2Offset=26, strokeWidth=2),
        layer("text", name, ends, align="left", baseline="middle", dx=30),
    ]


def _tell(place: Spec, what: str) -> Spec:
    """Return a point that appears where a pointer is nearest, with its values."""
    hover = {"type": "point", "on": "pointerover", "clear": "pointerout"}
    seen = {"condition": {"param": "hover", "empty": False, "value": 1}, "value": 0}
    titles = {
        "method": "method",
        "round": "round",
        "shown": what,
        "sent": "sent so far",
    }
    # A cell around each point is what is met, and has the point as its own datum. Vega-
    # Lite 6.4 forgets that of fields of text (its pull request 9707).
    pairs = (
        f"{json.dumps(t)}: (datum.datum || datum).{key}" for key, t in titles.items()
    )
    tooltip = {"value": {"expr": f"{{{', '.join(pairs)}}}"}}
    points = {**place, "opacity": seen, "tooltip": tooltip}
    return {
        **layer("point", points, filled=True, size=70),
        "params": [{"name": "hover", "select": {**hover, "nearest": True}}],
    }


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Move ascending heights as far apart as a gap, and as little as that takes.

    They stay between 0 and 1 as far as there is room.

    Examples
    --------
    >>> spread_out([0.1, 0.5, 0.5], 0.2)
    [0.1, 0.4, 0.6]
    """
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - slow to import

    steps = gap * np.arange(len(heights))
    # Heights less their steps must not fall: the nearest such sequence is isotonic.
    found = isotonic_regression(np.array(heights) - steps).x
    found = np.clip(found, 0.0, max(0.0, 1.0 - steps[-1]))
    return [round(float(each), 6) for each in found + steps]

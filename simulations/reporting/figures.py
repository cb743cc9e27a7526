"""Figures of methods: how they are printed, named and coloured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import sqrt
from pathlib import Path

import numpy as np
import vl_convert
from markupsafe import Markup

from cfl_flower.analysis.baselines import BOUND, REFERENCES
from cfl_flower.analysis.saved import SavedRun
from cfl_flower.settings import require
from cfl_flower.types import FloatArray
from simulations.reporting.charts import CONFIG, GREY, WIDTH, Chart, Spec

# Lines on white need contrast: 3 to 1 for the first seven.
LINES = (
    *("#332288", "#CC6677", "#117733", "#AA4499", "#882255"),
    *("#999933", "#2E8B7B", "#88CCEE", "#DDCC77"),
)
DASHES = ([1, 0], [6, 3], [2, 2], [6, 3, 2, 3])
OF_REFERENCES = ([6, 3], [3, 1], [1, 1], [2, 2], [8, 3, 2, 3])
DASHED = dict(zip((*REFERENCES, BOUND), OF_REFERENCES, strict=True))
"""The dashes of the grey lines of methods that others are measured by."""

COLUMNS = {"single": 3.5, "double": 7.16}
"""Inches of a column and of both, in journals of the IEEE; Nature's are 3.5 and 7.2."""
LETTERS = 8.0
"""Points of the letters of a file."""
MOST_BANDS = 4
"""Methods whose spreads are shown together: more of them hide each other."""


def inches_of(width: str | float) -> float:
    """Return the inches of a width: one of `COLUMNS`, or a number.

    Raises `ConfigError` for what is not printed.
    """
    try:
        inches = float(COLUMNS.get(str(width), width))
    except ValueError:
        inches = 0.0
    allowed = f"{', '.join(COLUMNS)} or inches from 2 to 20"
    require(2 <= inches <= 20, "width", width, allowed)
    return inches


def printed(chart: Chart) -> list[Spec]:
    """Return what is printed of a chart: no bands of many, and no method set off."""
    methods = {row.get("method") for row in chart.rows}
    hidden = "area" if len(methods) > MOST_BANDS else ""
    still = [each for each in chart.layers if "params" not in each]
    kept = [each for each in still if each["mark"]["type"] != hidden]
    if not methods - {None}:
        return kept
    channels = [
        {key: value for key, value in each["encoding"].items() if key != "opacity"}
        for each in kept
    ]
    return [{**e, "encoding": own} for e, own in zip(kept, channels, strict=True)]


@dataclass(frozen=True)
class Picture:
    """A figure of the page, and the name of its file."""

    name: str
    caption: str
    chart: Chart = field(repr=False)
    title: str = field(default="", repr=False)
    """Title above it where many are side by side."""

    @cached_property
    def svg(self) -> Markup:
        """The figure as an element that says what it shows."""
        label = Markup.escape(self.caption)
        element = f'<svg role="img" aria-label="{label}"'
        drawn = self.chart.svg.replace("<svg", element, 1)
        # Hundredths of a pixel are not seen. Numbers that are shown stay.
        short = re.sub(r"(\.\d\d)\d+(?=[^<>]*>)", r"\1", drawn)
        # In a page with others its ids are its own.
        return Markup(re.sub(r'((?:id="|url\(#))', rf"\g<1>{self.name}-", short))

    def save(self, folder: str | Path, width: str | float = "double") -> None:
        """Write it as PDF, SVG and PNG (300 dpi) into a folder, made if need be.

        ``width`` is one of `COLUMNS`, or inches. All of it is as much smaller or larger
        than in a page as its letters are.
        """
        points = 72 * inches_of(width)
        scale = LETTERS / CONFIG["axis"]["titleFontSize"]
        pixels = points / scale
        height = self.chart.height * sqrt(pixels / WIDTH)
        own = {"layer": printed(self.chart), "width": pixels, "height": height}
        svg = vl_convert.vegalite_to_svg({**self.chart.spec, **own})

        def sized(unit: str) -> str:
            size = f'width="{points:g}{unit}" height="{scale * height:g}{unit}"'
            return re.sub(r'width="[\d.]+" height="[\d.]+"', size, svg, count=1)

        path = Path(folder, self.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".svg").write_text(sized("pt"), encoding="utf-8")
        # The converter to other formats takes a pixel for a point.
        path.with_suffix(".pdf").write_bytes(vl_convert.svg_to_pdf(sized("")))
        png = vl_convert.svg_to_png(sized(""), ppi=300)
        path.with_suffix(".png").write_bytes(png)

    def _repr_svg_(self) -> str:
        """Show it in a notebook."""
        return self.svg


@dataclass(frozen=True)
class Line:
    """A method as pictures show it: the runs of its seeds, and its colour."""

    label: str
    runs: Sequence[SavedRun]
    number: int
    """Place among the methods of the page, which all pictures colour alike."""

    @property
    def is_reference(self) -> bool:
        """Whether others are measured by it: its line is grey and dashed."""
        return bool(self.runs) and self.runs[0].strategy in DASHED

    @property
    def colour(self) -> str:
        """The line's colour, as that of no other of the first nine."""
        return GREY if self.is_reference else LINES[self.number % len(LINES)]

    @property
    def dashes(self) -> list[int]:
        """The line's dashes, which tell methods of one colour apart."""
        if self.is_reference:
            return DASHED[self.runs[0].strategy]
        return DASHES[self.number // len(LINES) % len(DASHES)]

    def series(self, key: str) -> tuple[FloatArray, FloatArray]:
        """Return the rounds in which all seeds measured a number, and the numbers.

        Shapes (n,) and (seeds, n).
        """
        found = [run.series(key) for run in self.runs]
        rounds = reduce(np.intersect1d, [rounds for rounds, _ in found])
        values = [numbers[np.isin(own, rounds)] for own, numbers in found]
        return rounds.astype(float), np.array(values)


Lines = Sequence[Line]


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

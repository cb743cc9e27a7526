"""Charts in Vega-Lite: one description for pages, which tell values, and files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import vl_convert

Spec: TypeAlias = dict[str, Any]
"""A part of a Vega-Lite specification (https://vega.github.io/vega-lite/docs)."""
Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""Data of the marks: numbers and words by the name of their field."""

WIDTH = 600
"""Width of a file, in pixels of 1/96 inch; in a page a chart is as wide as there is
room."""
PAPER = 670
"""The width of A4 within its margins, in pixels."""
HALF = 325
"""Width of a column of two."""
# Paul Tol's "muted" scheme, which colour-blind readers can tell apart, and two more.
COLOURS = (
    *("#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE"),
    *("#882255", "#44AA99", "#999933", "#AA4499", "#6699CC", "#661100", "#DDDDDD"),
)
GREY = "#767676"
"""Colour of references, axes and drifts: enough contrast on light and on dark
grounds."""
DARK = {
    "#332288": "#9a8cf0",
    "#CC6677": "#e5808f",
    "#117733": "#44b56a",
    "#AA4499": "#d67cc8",
    "#882255": "#c4588c",
    "#999933": "#b9b94e",
    "#2E8B7B": "#4fbfab",
    "#44AA99": "#4fbfab",
    "#661100": "#c9704f",
}
"""Colours of marks on a dark ground; others stay as they are."""
INK = {
    "#CC6677": "#b45a69",
    "#999933": "#787828",
    "#2E8B7B": "#2a8071",
    "#88CCEE": "#50788c",
    "#DDCC77": "#7d7343",
}
"""Colours of lines as letters: as dark as WCAG asks for on white, 4.5 to 1."""
CONFIG: Spec = {
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": None},
    "mark": {"aria": False},  # what stands around a chart says what it shows
    "axis": {
        "aria": False,
        "domainColor": GREY,
        "tickColor": GREY,
        "gridColor": GREY,
        "gridOpacity": 0.2,
        "tickCount": 6,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
    },
    "legend": {"labelFontSize": 11},
    "text": {"fontSize": 12},
}


@dataclass(frozen=True, repr=False)
class Chart:
    """Layers of marks, those behind first, in one view."""

    rows: Rows
    """Rows of all layers that have none of their own."""
    layers: Sequence[Spec]
    height: int
    """Height in pixels, with axes and labels."""
    params: Sequence[Spec] = ()
    """Parameters that a script may set."""
    width: int = WIDTH
    """Width of a file, and on paper."""

    @cached_property
    def spec(self) -> Spec:
        """All of it, in Vega-Lite."""
        return {
            "width": self.width,
            "height": self.height,
            "autosize": {"type": "fit", "contains": "padding"},
            "background": "white",
            "config": CONFIG,
            "data": {"values": list(self.rows)},
            "params": list(self.params),
            "layer": list(self.layers),
        }

    @cached_property
    def svg(self) -> str:
        """The chart as it is before anything points at it."""
        still = [layer for layer in self.layers if "params" not in layer]
        drawn = vl_convert.vegalite_to_svg({**self.spec, "layer": still})
        # It counts what has an id in a process: the same chart is the same text.
        numbers: dict[str, int] = {}

        def renumber(found: re.Match[str]) -> str:
            return f"{found[1]}{numbers.setdefault(found[2], len(numbers))}"

        return re.sub(r'((?:id="|url\(#)(?:clip))(\d+)', renumber, drawn)


def slug(name: str) -> str:
    """Return a name as anchors and files have it."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def layer(kind: str, encoding: Spec, rows: Rows | None = None, **mark: Any) -> Spec:
    """Return marks of a kind, one for each row, or one for each series of rows."""
    found: Spec = {"mark": {"type": kind, **mark}, "encoding": encoding}
    return found if rows is None else {**found, "data": {"values": list(rows)}}


def number(field: str, span: Sequence[float] | None = None, **axis: Any) -> Spec:
    """Return a channel that shows a number, on the axis that is described."""
    scale = {"domain": list(span), "nice": False, "zero": False} if span else {}
    found = {"field": field, "type": "quantitative", "scale": scale}
    return {**found, "axis": axis} if axis else found


def rounds_axis(first: float, last: float) -> Spec:
    """Return the axis of rounds, of which there are no halves."""
    domain = (first, last) if first < last else (first - 0.5, last + 0.5)
    axis = {"title": "round", "tickMinStep": 1, "format": "d", "grid": False}
    return number("round", domain, **axis)

"""Charts in Vega-Lite: one description for pages, which tell values, and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import vl_convert

from cfl_flower.types import FloatArray

Spec: TypeAlias = dict[str, Any]
"""A part of a Vega-Lite specification (https://vega.github.io/vega-lite/docs)."""
Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""What marks are drawn from: numbers and words by the name of their field."""

WIDTH = 600
"""Of a file, in pixels of 1/96 inch; in a page a chart is as wide as there is room."""
GREY = "#767676"
"""Of axes and marks of drifts: enough contrast on a light ground and on a dark one."""
DARK = {
    "#332288": "#9a8cf0",
    "#CC6677": "#e5808f",
    "#117733": "#44b56a",
    "#AA4499": "#d67cc8",
    "#882255": "#c4588c",
    "#999933": "#b9b94e",
    "#2E8B7B": "#4fbfab",
    "#44AA99": "#4fbfab",
}
"""What colours of marks are on a dark ground; others are as they are."""
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
    """What all layers show that have no rows of their own."""
    layers: Sequence[Spec]
    height: int
    """In pixels, its axes and labels included."""

    @cached_property
    def spec(self) -> Spec:
        """All of it, in Vega-Lite."""
        return self._with(self.layers)

    @cached_property
    def svg(self) -> str:
        """The chart as it is before anything points at it."""
        still = [layer for layer in self.layers if "params" not in layer]
        return vl_convert.vegalite_to_svg(self._with(still))

    def save(self, path: Path) -> None:
        """Write it as SVG, or as PDF if the name says so."""
        as_pdf = path.suffix == ".pdf"
        content = vl_convert.svg_to_pdf(self.svg) if as_pdf else self.svg.encode()
        path.write_bytes(content)

    def _with(self, layers: Sequence[Spec]) -> Spec:
        return {
            "width": WIDTH,
            "height": self.height,
            "autosize": {"type": "fit", "contains": "padding"},
            "background": "white",
            "config": CONFIG,
            "data": {"values": list(self.rows)},
            "layer": list(layers),
        }


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


def told(**titles: str) -> list[Spec]:
    """Return what is told of a mark that is pointed at: fields, and their titles."""
    return [{"field": field, "title": title} for field, title in titles.items()]


def spans(row: FloatArray) -> Iterator[tuple[int, int, float]]:
    """Yield first place, last place and value where a row keeps one; NaN is none.

    Examples
    --------
    >>> [tuple(map(int, found)) for found in spans(np.array([7, 7, np.nan, 2, 7]))]
    [(0, 1, 7), (3, 3, 2), (4, 4, 7)]
    """
    cuts = np.flatnonzero(np.diff(row) != 0) + 1
    for part in np.split(np.arange(len(row)), cuts):
        if not np.isnan(row[part[0]]):
            yield int(part[0]), int(part[-1]), float(row[part[0]])

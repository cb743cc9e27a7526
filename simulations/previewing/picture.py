"""The picture of a preview: who holds what at first and at last, and what changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import vl_convert

from cfl_flower.types import IntArray
from simulations.previewing.data_summary import (
    Preview,
    evenly,
    rows_by_concept,
    shares,
    span,
)
from simulations.reporting.charts import (
    BLUES,
    COLOURS,
    CONFIG,
    Spec,
    gradient,
    image,
    layer,
    number,
    place,
    rounds_axis,
)

LINES = 60
"""Changes that are drawn as lines through the ribbon; more would hide it."""
HEIGHT = 540
LEAST_WIDTH = 240

VIRIDIS = (
    *("#440154", "#482878", "#3e4989", "#31688e", "#26828e"),
    *("#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"),
)
# Light and dark in turn: for areas side by side.
AREAS = tuple(COLOURS[number_] for number_ in (1, 0, 3, 2, *range(4, 10)))


def draw(found: Preview, title: str) -> str:
    """Draw who holds what at first and at last, and the true concepts between.

    Returns an SVG.
    """
    rows = rows_by_concept(found.history)
    clients = len(found.history)
    some = (
        f"{len(rows):,} of {clients:,}" if len(rows) < clients else f"all {clients:,}"
    )
    names = {at + 0.5: str(rows[at]) for at in evenly(len(rows), 20)}
    y = _named("place", (len(rows), 0), names)
    first = {**y, "axis": {**y["axis"], "title": f"client ({some}, by true concept)"}}
    # Of three periods, the second is in the text alone.
    maps = [part[rows] for part in (found.counts[0], *found.counts[2:])]
    ends = (found.periods[0], found.periods[-1])
    periods = [span(each.start, each.end) for each in ends][: len(maps)]
    spec = {
        "title": {"text": title, "anchor": "middle", "fontSize": 16},
        "background": "white",
        "config": CONFIG,
        "resolve": {"scale": {"color": "independent"}},
        "hconcat": [
            *_draw_counts(found, maps, periods, (first, y)),
            _draw_rounds(found, rows, y),
        ],
    }
    return vl_convert.vegalite_to_svg(spec)


def _named(field: str, ends: tuple[float, float], names: dict[float, str]) -> Spec:
    """Return an axis with names at some places."""
    label = f"{json.dumps(names)}[datum.value]"
    axis: Any = {"values": list(names), "labelExpr": label, "grid": False}
    axis |= {"labelOverlap": False, "tickCount": len(names)}
    return number(field, ends, title=None, **axis)


def _panel(title: str, width: int, layers: Sequence[Spec]) -> Spec:
    return {"title": title, "width": width, "height": HEIGHT, "layer": list(layers)}


def _draw_counts(
    found: Preview,
    counts: Sequence[IntArray],
    periods: Sequence[str],
    ys: Sequence[Spec],
) -> list[Spec]:
    """Draw the samples of each client at some times, by label or by distribution."""
    columns = found.columns
    labels = columns.what == "label"
    names = {at + 0.5: columns.names[at] for at in evenly(len(columns.names), 10)}
    x = _named("left", (0, len(columns.names)), names)
    by = "label, as the client calls it" if labels else "distribution, by its rotation"
    x["axis"]["title"] = by
    largest = max(2, *(int(part.max()) for part in counts))
    # Sizes often follow a power law; the shares of a mixture do not.
    ends = (0.0, float(np.log(largest))) if labels else (0.0, 1.0)
    what = "training samples of a client" if labels else "share of a client's samples"
    legend = gradient(
        (1, largest) if labels else (0, 1),
        "blues",
        "log" if labels else "linear",
        title=f"{what} (white: none)",
        orient="bottom",
        format=",.0f" if labels else ".0%",
    )
    panels: list[Spec] = []
    for part, period, y in zip(counts, periods, ys, strict=False):
        values = np.log(np.maximum(part, 1)) if labels else shares(part)
        url = image(np.where(part == 0, np.nan, values), ends, BLUES)
        width = len(columns.names)
        rows = [{"left": 0, "end": width, "place": 0, "below": len(part), "url": url}]
        layers = [place(rows, x, y)] if panels else [place(rows, x, y), legend]
        panels.append(_panel(f"Who holds what in {period}", LEAST_WIDTH, layers))
    return panels


def _draw_rounds(found: Preview, rows: IntArray, y: Spec) -> Spec:
    """Draw the true concept of each client over the rounds, or its samples."""
    if found.sizes is None:
        what = "True concept"
        numbers, codes = np.unique(found.history[rows], return_inverse=True)
        values = codes.reshape(len(rows), -1).astype(float)
        colours = AREAS[: len(numbers)] if len(numbers) <= len(AREAS) else VIRIDIS
        ends = (0.0, max(1.0, len(numbers) - 1.0))
        shown = [str(numbers[at]) for at in evenly(len(numbers), len(AREAS))]
        scale = {"domain": shown, "range": list(colours)}
        title = "true concept, by first appearance"
        about = {"title": title, "orient": "bottom", "symbolType": "square"}
        colour = {"field": "concept", "scale": scale, "legend": about}
        names = [{"concept": name} for name in shown]
        legend = layer("point", {"color": colour}, names, opacity=0, filled=True)
    else:
        what = "Samples"
        values = found.sizes.astype(float)
        colours = BLUES
        ends = (0.0, max(1.0, float(values.max())))
        title = "training samples of a client (no concept changes)"
        style: Any = {"title": title, "orient": "bottom", "format": ",.0f"}
        legend = gradient(ends, "blues", "linear", **style)
    x = rounds_axis(0.5, found.total + 0.5)
    # Of many periods those in between are not drawn: each goes on until the next.
    begins = [*found.sampled, found.total + 1]
    ribbon = [
        {
            "round": begin - 0.5,
            "end": end - 0.5,
            "place": 0,
            "below": len(rows),
            "url": image(column[:, None], ends, colours),
        }
        for begin, end, column in zip(begins, begins[1:], values.T, strict=False)
    ]
    changes = [{"round": start - 0.5} for start in found.starts[1:]]
    times = "1 change" if len(changes) == 1 else f"{len(changes):,} changes"
    layers = [place(ribbon, x, y), *_mark(changes, x), legend]
    return _panel(f"{what} of each client ({times})", round(1.5 * LEAST_WIDTH), layers)


def _mark(changes: Sequence[Spec], x: Spec) -> list[Spec]:
    """Draw a line at each change; where there are many, a mark above the picture."""
    if len(changes) > LINES:
        mark = {"x": x, "y": {"value": -6}, "y2": {"value": -1}}
        return [layer("rule", mark, changes, strokeWidth=0.6)]
    width = float(np.clip(20 / max(1, len(changes)), 0.5, 1.2))
    return [
        layer("rule", {"x": x}, changes, color="white", strokeWidth=2.5 * width),
        layer("rule", {"x": x}, changes, color="black", strokeWidth=width),
    ]

"""The picture of a preview: who holds what at first and at last, and what changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import vl_convert

from cfl_flower.types import FloatArray, IntArray
from simulations.previewing.data_summary import Preview, rows_by_concept, shares
from simulations.reporting.charts import (
    BLUES,
    CONFIG,
    Spec,
    gradient,
    grid,
    layer,
    number,
    rounds_axis,
)
from simulations.reporting.rivers import colour

LINES = 60
"""Changes that are drawn as lines through the ribbon; more would hide it."""
NAMES = 10
"""Concepts in the legend."""
HEIGHT = 540
WIDTH = 240
HIDDEN: Any = {"labels": False, "ticks": False, "grid": False}


def draw(found: Preview, title: str) -> str:
    """Draw who holds what at first and at last, and the true concepts between.

    Returns an SVG.
    """
    rows = rows_by_concept(found.history)
    clients = len(found.history)
    some = f"{len(rows):,} of {clients:,}" if len(rows) < clients else f"{clients:,}"
    y = number(
        "place", (len(rows), 0), title=f"{some} clients, by true concept", **HIDDEN
    )
    held = [
        _panel(
            f"Who holds what in {period.rounds}",
            _draw_shares(shares(period.counts[rows]), found.columns.what, y),
        )
        for period in found.ends
    ]
    changes = [{"round": start - 0.5} for start in found.starts[1:]]
    times = "1 change" if len(changes) == 1 else f"{len(changes):,} changes"
    ribbon = _draw_concepts(found.history[rows], changes, found.total, y)
    spec = {
        "title": {"text": title, "anchor": "middle", "fontSize": 16},
        "background": "white",
        "config": CONFIG,
        "resolve": {"scale": {"color": "independent"}},
        "hconcat": [*held, _panel(f"True concept of each client ({times})", ribbon)],
    }
    return vl_convert.vegalite_to_svg(spec)


def _panel(title: str, layers: list[Spec]) -> Spec:
    return {"title": title, "width": WIDTH, "height": HEIGHT, "layer": layers}


def _draw_shares(table: FloatArray, what: str, y: Spec) -> list[Spec]:
    """Draw the shares of each client's samples, by label or by distribution."""
    x = number("round", (0, table.shape[1]), title=f"{what}, from the first", **HIDDEN)
    words = "share of a client's samples"
    legend = gradient((0, 1), "blues", "linear", title=words, orient="bottom")
    return [grid(np.where(table == 0, np.nan, table), (0, 1), BLUES, x, y), legend]


def _draw_concepts(
    history: IntArray, changes: list[dict[str, float]], total: int, y: Spec
) -> list[Spec]:
    """Draw the true concept of each client over the rounds."""
    numbers, codes = np.unique(history, return_inverse=True)
    colours = [colour(place) for place in range(len(numbers))]
    table = codes.reshape(history.shape).astype(float)
    x = rounds_axis(0.5, total + 0.5)
    names = [str(concept) for concept in numbers[:NAMES]]
    scale = {"domain": names, "range": colours[:NAMES]}
    about = {"title": "true concept", "orient": "bottom", "symbolType": "square"}
    shown = {"field": "concept", "scale": scale, "legend": about}
    legend = [{"concept": name} for name in names]
    few = changes if len(changes) <= LINES else []
    return [
        grid(table, (0.0, max(1.0, len(numbers) - 1.0)), colours, x, y),
        layer("rule", {"x": x}, few, strokeWidth=0.7),
        layer("point", {"color": shown}, legend, opacity=0, filled=True),
    ]

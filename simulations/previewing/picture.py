"""The picture of a preview: who holds what at first and at last, and what changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import (
    BoundaryNorm,
    Colormap,
    ListedColormap,
    LogNorm,
    Normalize,
)
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, PercentFormatter, StrMethodFormatter

from cfl_flower.types import FloatArray, IntArray
from simulations.previewing.data_summary import (
    Columns,
    Preview,
    evenly,
    rows_by_concept,
    shares,
    span,
)
from simulations.reporting.plotting import AREAS, count_in_integers, new_figure

COUNT = StrMethodFormatter("{x:,.0f}")

LINES = 60
"""Changes that are drawn as lines through the ribbon; more would hide it."""

# From a light colour on, which still is no white: few samples are not none.
AMOUNTS = ListedColormap(mpl.colormaps["Blues"](np.linspace(0.18, 1, 256)))


def draw(found: Preview, title: str) -> Figure:
    """Draw who holds what at first and at last, and the true concepts between."""
    rows = rows_by_concept(found.history)
    # Of three periods, the second is in the text alone.
    maps = [part[rows] for part in (found.counts[0], *found.counts[2:])]
    first = found.periods[0]
    last = found.periods[-1]
    spans = [span(each.start, each.end) for each in (first, last)]
    figure = new_figure(4.0 * len(maps) + 6.5, 7.5)
    widths = [1.0] * len(maps) + [1.5]
    panels: list[Axes] = list(figure.subplots(1, len(widths), width_ratios=widths))
    _draw_counts(figure, panels[:-1], maps, spans, found.columns)
    draw_rounds = _draw_history if found.sizes is None else _draw_sizes
    draw_rounds(figure, panels[-1], found, rows)
    clients = len(found.history)
    places = evenly(len(rows), 20)
    some = (
        f"{len(rows):,} of {clients:,}" if len(rows) < clients else f"all {clients:,}"
    )
    panels[0].set_ylabel(f"client ({some}, sorted by true concept)", fontsize=12)
    for panel in panels:
        panel.set_yticks(places, [str(rows[place]) for place in places])
        panel.tick_params(labelsize=10)
    figure.suptitle(title, fontsize=15)
    return figure


def _draw_counts(
    figure: Figure,
    panels: Sequence[Axes],
    counts: Sequence[IntArray],
    spans: Sequence[str],
    columns: Columns,
) -> None:
    labels = columns.what == "label"
    # Sizes often follow a power law; the shares of a mixture do not.
    largest = max(2, *(int(part.max()) for part in counts))
    norm = LogNorm(1, largest) if labels else Normalize(0, 1)
    maps = counts if labels else [shares(part) for part in counts]
    colours = AMOUNTS.with_extremes(bad="white")
    style: Any = {"aspect": "auto", "interpolation": "nearest"}
    for panel, part, name in zip(panels, maps, spans, strict=False):
        held = np.ma.masked_equal(part, 0)
        picture = panel.imshow(held, cmap=colours, norm=norm, **style)
        panel.set_title(f"Who holds what in {name}", fontsize=12)
        if labels:
            panel.set_xlabel("label, as the client calls it", fontsize=12)
            count_in_integers(panel.xaxis, 10)
        else:
            panel.set_xlabel(f"distribution, by its {columns.what}", fontsize=12)
            panel.set_xticks(range(len(columns.names)), columns.names)
    what = "training samples of a client" if labels else "share of a client's samples"
    bar = _explain(figure, panels, picture, f"{what} (white: none)")
    if labels:
        fine = (1.0, 2.0, 5.0) if largest < 1000 else (1.0,)
        bar.set_ticks(LogLocator(subs=fine), minor=False)
        bar.ax.xaxis.set_major_formatter(COUNT)
        bar.minorticks_off()
    else:
        bar.ax.xaxis.set_major_formatter(PercentFormatter(1))


def _explain(
    figure: Figure,
    panels: Axes | Sequence[Axes],
    picture: ScalarMappable,
    what: str,
) -> Colorbar:
    """Say below panels what their colours stand for."""
    bar = figure.colorbar(picture, ax=panels, location="bottom", shrink=0.8)
    bar.set_label(what, fontsize=11)
    return bar


def _draw_history(figure: Figure, panel: Axes, found: Preview, rows: IntArray) -> None:
    numbers, codes = np.unique(found.history[rows], return_inverse=True)
    count = len(numbers)
    colours = ListedColormap(
        AREAS[:count]
        if count <= len(AREAS)
        else mpl.colormaps["viridis"](np.linspace(0, 1, count))
    )
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, max(count, 2))
    values = codes.reshape(len(rows), -1)
    picture = _draw_rounds(panel, found, values, "True concept", colours, norm)
    bar = _explain(figure, panel, picture, "true concept, by first appearance")
    places = evenly(count, len(AREAS))
    bar.set_ticks(places, labels=[str(numbers[place]) for place in places])


def _draw_sizes(figure: Figure, panel: Axes, found: Preview, rows: IntArray) -> None:
    del rows
    sizes = found.sizes
    assert sizes is not None
    norm = Normalize(0, max(1, int(sizes.max())))
    picture = _draw_rounds(panel, found, sizes, "Samples", AMOUNTS, norm)
    what = "training samples of a client (no concept changes)"
    bar = _explain(figure, panel, picture, what)
    count_in_integers(bar.ax.xaxis, 8)
    bar.ax.xaxis.set_major_formatter(COUNT)


def _draw_rounds(
    panel: Axes,
    found: Preview,
    values: IntArray,
    what: str,
    colours: Colormap,
    norm: Normalize,
) -> ScalarMappable:
    """Draw a value of each client over the rounds, with their changes."""
    x = np.array([*found.sampled, found.total + 1]) - 0.5
    y = np.arange(len(values) + 1) - 0.5
    style: Any = {"cmap": colours, "norm": norm, "rasterized": True}
    picture = panel.pcolormesh(x, y, values, **style)
    panel.invert_yaxis()
    changes = found.starts[1:]
    _draw_changes(panel, np.array(changes) - 0.5)
    times = "1 change" if len(changes) == 1 else f"{len(changes):,} changes"
    # Above the marks, where there are any.
    space = 12.0 if len(changes) > LINES else None
    panel.set_title(f"{what} of each client ({times})", fontsize=12, pad=space)
    panel.set_xlabel("round", fontsize=12)
    count_in_integers(panel.xaxis, 10)
    return picture


def _draw_changes(panel: Axes, places: FloatArray) -> None:
    """Draw a line at each change; where there are many, a mark above the picture."""
    where: Any = {"transform": panel.get_xaxis_transform(), "clip_on": False}
    if len(places) > LINES:
        panel.vlines(places, 1.002, 1.015, color="black", linewidth=0.6, **where)
        return
    width = float(np.clip(20 / max(1, len(places)), 0.5, 1.2))
    panel.vlines(places, 0, 1, color="white", linewidth=2.5 * width, **where)
    panel.vlines(places, 0, 1, color="black", linewidth=width, **where)

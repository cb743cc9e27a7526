"""The picture of a preview: who holds what at first and at last, and what changes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.colors import (
    BoundaryNorm,
    Colormap,
    ListedColormap,
    LogNorm,
    Normalize,
)
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter

from cfl_flower.types import FloatArray, IntArray
from simulations.data_summary import (
    Columns,
    Preview,
    evenly,
    rows_by_concept,
    shares,
    span,
)
from simulations.terminal import writable

LINES = 60
"""Changes that are drawn as lines through the ribbon; more would hide it."""

FORMATS: dict[str, dict[str, None]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
"""Known pictures, and what to leave out of them: same seed, same bits."""

# Paul Tol's "muted" scheme, which colour-blind readers can tell apart.
COLOURS = (
    *("#CC6677", "#332288", "#DDCC77", "#117733", "#88CCEE"),
    *("#882255", "#44AA99", "#999933", "#AA4499", "#DDDDDD"),
)

# From a light colour on, which still is no white: few samples are not none.
AMOUNTS = ListedColormap(mpl.colormaps["Blues"](np.linspace(0.18, 1, 256)))


def log_ticks(largest: int) -> list[int]:
    """Return round numbers up to the largest one, at most eight, for a log scale.

    Examples
    --------
    >>> log_ticks(40)
    [1, 2, 5, 10, 20]
    """
    decades = [10**power for power in range(len(str(largest)))]
    fine = [digit * ten for ten in decades for digit in (1, 2, 5)]
    ticks = fine if len(decades) <= 3 else decades
    return [tick for tick in ticks if tick <= largest]


def draw(found: Preview, title: str) -> Figure:
    """Draw who holds what at first and at last, and the true concepts between."""
    rows = rows_by_concept(found.history)
    maps = [found.counts[0], *found.counts[2:]]
    spans = [span(*ends) for ends in _ends(found)]
    figure = Figure(figsize=(4.0 * len(maps) + 6.5, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    widths = [1.0] * len(maps) + [1.5]
    panels: list[Axes] = list(figure.subplots(1, len(widths), width_ratios=widths))
    _draw_counts(
        figure, panels[:-1], [part[rows] for part in maps], spans, found.columns
    )
    if found.sizes is None:
        _draw_history(figure, panels[-1], found, rows)
    else:
        _draw_sizes(figure, panels[-1], found, found.sizes)
    clients, places = len(found.history), evenly(len(rows), 20)
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
    panels: list[Axes],
    counts: list[IntArray],
    spans: list[str],
    columns: Columns,
) -> None:
    labels = columns.what == "label"
    # Sizes often follow a power law; the shares of a mixture do not.
    largest = max(2, *(int(part.max()) for part in counts))
    norm = LogNorm(1, largest) if labels else Normalize(0, 1)
    maps = counts if labels else [shares(part) for part in counts]
    colours = AMOUNTS.with_extremes(bad="white")
    for panel, part, name in zip(panels, maps, spans, strict=False):
        held = np.ma.masked_equal(part, 0)
        picture = panel.imshow(
            held, cmap=colours, norm=norm, aspect="auto", interpolation="nearest"
        )
        panel.set_title(f"Who holds what in {name}", fontsize=12)
        if labels:
            panel.set_xlabel("label, as the client calls it", fontsize=12)
            panel.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        else:
            panel.set_xlabel(f"distribution, by its {columns.what}", fontsize=12)
            panel.set_xticks(range(len(columns.names)), columns.names)
    bar = figure.colorbar(picture, ax=panels, location="bottom", shrink=0.8)
    if labels:
        ticks = log_ticks(int(norm.vmax or 1))
        bar.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks])
        bar.minorticks_off()
    else:
        bar.ax.xaxis.set_major_formatter(PercentFormatter(1))
    what = "training samples of a client" if labels else "share of a client's samples"
    bar.set_label(f"{what} (white: none)", fontsize=11)


def _draw_history(figure: Figure, panel: Axes, found: Preview, rows: IntArray) -> None:
    numbers, codes = np.unique(found.history[rows], return_inverse=True)
    count = len(numbers)
    colours = ListedColormap(
        COLOURS[:count]
        if count <= len(COLOURS)
        else mpl.colormaps["viridis"](np.linspace(0, 1, count))
    )
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, max(count, 2))
    values = codes.reshape(len(rows), -1)
    picture = _draw_rounds(panel, found, values, "True concept", colours, norm)
    places = evenly(count, len(COLOURS))
    bar = figure.colorbar(picture, ax=panel, location="bottom", shrink=0.8)
    bar.set_ticks(places, labels=[str(numbers[place]) for place in places])
    bar.set_label("true concept, by first appearance", fontsize=11)


def _draw_sizes(figure: Figure, panel: Axes, found: Preview, sizes: IntArray) -> None:
    norm = Normalize(0, max(1, int(sizes.max())))
    picture = _draw_rounds(panel, found, sizes, "Samples", AMOUNTS, norm)
    bar = figure.colorbar(picture, ax=panel, location="bottom", shrink=0.8)
    bar.ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    bar.ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    bar.set_label("training samples of a client (no concept changes)", fontsize=11)


def _draw_rounds(
    panel: Axes,
    found: Preview,
    values: IntArray,
    what: str,
    colours: Colormap,
    norm: Normalize,
) -> QuadMesh:
    """Draw a value of each client over the rounds, with their changes."""
    picture = panel.pcolormesh(
        np.array([*found.sampled, found.total + 1]) - 0.5,
        np.arange(len(values) + 1) - 0.5,
        values,
        cmap=colours,
        norm=norm,
        rasterized=True,
    )
    panel.invert_yaxis()
    changes = found.starts[1:]
    _draw_changes(panel, np.array(changes) - 0.5)
    times = "1 change" if len(changes) == 1 else f"{len(changes):,} changes"
    # Above the marks, where there are any.
    space = 12.0 if len(changes) > LINES else None
    panel.set_title(f"{what} of each client ({times})", fontsize=12, pad=space)
    panel.set_xlabel("round", fontsize=12)
    panel.xaxis.set_major_locator(MaxNLocator(10, integer=True))
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


def _ends(found: Preview) -> list[tuple[int, int]]:
    """Return the rounds of the first period and of the last."""
    edges = [(one, two - 1) for one, two in pairwise([*found.starts, found.total + 1])]
    return [edges[0], edges[-1]]


def write(figure: Figure, path: Path) -> None:
    """Write a picture.

    Raises
    ------
    ConfigError
        If the file cannot be written.
    """
    metadata = FORMATS[path.suffix.lower()]
    with (
        writable("--output", path, "name another file"),
        mpl.rc_context({"svg.hashsalt": "cfl-flower"}),
    ):
        figure.savefig(path, dpi=120, metadata=metadata)

"""Pictures of saved runs, each from the raw lines that a run leaves behind."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from simulations.saved import SavedRun

# Paul Tol's "muted" scheme, which colour-blind readers can tell apart.
COLOURS = (
    *("#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE"),
    *("#882255", "#44AA99", "#999933", "#AA4499", "#DDDDDD"),
)
# Lines on white need contrast: 3 to 1 for the first seven.
LINES = (
    *("#332288", "#CC6677", "#117733", "#AA4499", "#882255"),
    *("#999933", "#2E8B7B", "#88CCEE", "#DDCC77"),
)
MARKS = ("-", "--", ":", "-.")
DOTS = (0, (2, 2))
WIDTH = 6.0
"""Inches: on a phone the text is then still readable."""

Runs = Mapping[str, SavedRun]


def curves(runs: Runs, key: str, label: str, percent: bool = False) -> Figure:
    """Draw one number over the rounds, a line per run, with the drifts marked."""
    figure, axes = _canvas(3.4)
    for number, (name, run) in enumerate(runs.items()):
        rounds, values = run.series(key)
        colour = LINES[number % len(LINES)]
        mark = MARKS[number // len(LINES) % len(MARKS)]
        axes.plot(rounds, values, mark, color=colour, label=name, linewidth=1.6)
    first, *others = runs.values()
    if all(other.drifts == first.drifts for other in others):
        _mark_drifts(axes, first)
    axes.set_ylabel(label)
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    elif key == "num_clusters":
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if len(runs) > 1:
        axes.legend(frameon=False, fontsize=8, ncols=2)
    return figure


def accuracy(runs: Runs) -> Figure:
    """Draw the accuracy over all samples."""
    return curves(runs, "accuracy", "accuracy over all samples", percent=True)


def traffic(runs: Runs) -> Figure:
    """Draw the accuracy over the bytes sent so far, both ways."""
    figure, axes = _canvas(3.4)
    for number, (name, run) in enumerate(runs.items()):
        sent = np.cumsum([row["bytes_up"] + row["bytes_down"] for row in run.rounds])
        rounds, values = run.series("accuracy")
        place = {row["round"]: i for i, row in enumerate(run.rounds)}
        spent = sent[[place[round] for round in rounds.tolist()]] / 1e6
        axes.plot(spent, values, color=LINES[number % len(LINES)], label=name)
    axes.set_xlabel("megabytes sent, up and down")
    axes.set_ylabel("accuracy over all samples")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator())
    axes.legend(frameon=False, fontsize=8)
    return figure


def client_accuracy(run: SavedRun) -> Figure:
    """Draw every client's accuracy in every round, the best clients on top."""
    table = run.table("accuracy")
    order = np.argsort(-np.nan_to_num(np.nanmean(table, axis=1)), kind="stable")
    figure, axes = _canvas(4.0)
    image = axes.imshow(
        table[order],
        aspect="auto",
        interpolation="nearest",
        cmap="cividis",
        vmin=0,
        vmax=1,
        extent=(0.5, table.shape[1] + 0.5, len(order), 0),
    )
    bar = figure.colorbar(image, ax=axes)
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("clients, by mean accuracy")
    _mark_drifts(axes, run, "white")
    return figure


def membership(run: SavedRun) -> Figure:
    """Draw which cluster each client is in over the rounds: who moved when."""
    table = run.table("cluster")
    # Clients with the same history lie together.
    order = np.lexsort(np.nan_to_num(table, nan=-1).T[::-1])
    figure, axes = _canvas(4.0)
    names = np.unique(table[~np.isnan(table)]).astype(int)
    places = np.searchsorted(names, np.nan_to_num(table, nan=names.min(initial=0)))
    shown = np.ma.masked_array(places % len(COLOURS), np.isnan(table))
    axes.imshow(
        shown[order],
        aspect="auto",
        interpolation="nearest",
        cmap=ListedColormap(list(COLOURS)),
        vmin=-0.5,
        vmax=len(COLOURS) - 0.5,
        extent=(0.5, table.shape[1] + 0.5, len(order), 0),
    )
    axes.set_ylabel("clients, by their history")
    _mark_drifts(axes, run, "white")
    return figure


def cluster_sizes(run: SavedRun) -> Figure:
    """Draw how many clients each cluster has over the rounds."""
    width = max(len(row["cluster_sizes"]) for row in run.rounds)
    sizes = np.zeros((len(run.rounds), width))
    for number, row in enumerate(run.rounds):
        sizes[number, : len(row["cluster_sizes"])] = row["cluster_sizes"]
    figure, axes = _canvas(2.8)
    rounds = [row["round"] for row in run.rounds]
    colours = [COLOURS[number % len(COLOURS)] for number in range(width)]
    axes.stackplot(rounds, sizes.T, colors=colours, step="mid", linewidth=0)
    axes.set_ylabel("clients in each cluster")
    axes.margins(0)
    _mark_drifts(axes, run, "white")
    return figure


def failures(run: SavedRun) -> Figure:
    """Draw how many results failed in each round, by reason."""
    reasons = sorted({f["reason"] for row in run.rounds for f in row["failures"]})
    rounds = [row["round"] for row in run.rounds]
    figure, axes = _canvas(2.4)
    bottom = np.zeros(len(rounds))
    for number, reason in enumerate(reasons):
        counts = np.array(
            [sum(f["reason"] == reason for f in row["failures"]) for row in run.rounds]
        )
        colour = COLOURS[number % len(COLOURS)]
        axes.bar(rounds, counts, bottom=bottom, color=colour, label=reason, width=1.0)
        bottom += counts
    axes.set_ylabel("failed results")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, fontsize=8)
    return figure


def class_distances(run: SavedRun) -> Figure:
    """Draw the distances of classifiers, a matrix per class: FedCCFA, Figure 7."""
    matrices = run.distances
    assert matrices is not None
    columns = min(5, len(matrices))
    rows = -(-len(matrices) // columns)
    size = WIDTH, 0.4 + rows * WIDTH / columns
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    largest = max(float(np.nanmax(matrices, initial=0.0)), 1e-6)
    shared = figure.subplots(rows, columns, squeeze=False)
    for axes in shared.flat[len(matrices) :]:
        axes.axis("off")
    for label, (axes, matrix) in enumerate(zip(shared.flat, matrices, strict=False)):
        image = axes.imshow(matrix, vmin=0, vmax=largest, cmap="cividis")
        axes.set_title(f"class {label}", fontsize=8)
        axes.set_xticks([])
        axes.set_yticks([])
    figure.colorbar(image, ax=shared, shrink=0.6, label="distance")
    return figure


def _canvas(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _mark_drifts(axes: Axes, run: SavedRun, colour: str = "#666666") -> None:
    """Draw a line where the data changed, unless that is nearly everywhere."""
    if len(run.drifts) <= 40:
        for round in run.drifts:
            axes.axvline(
                round - 0.5, color=colour, linewidth=0.9, linestyle=(0, (2, 2))
            )


def to_svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element; the same figure gives the same text.

    Its ids start with the name, so that many figures can be in one page.
    """
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    own = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return own[own.index("<svg") :]

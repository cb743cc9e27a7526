"""Pictures of saved runs, each from the raw lines that a run leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator, PercentFormatter

from cfl_flower.types import FloatArray
from simulations.plotting import COLOURS, count_in_integers, new_figure
from simulations.saved import SavedRun

# Lines on white need contrast: 3 to 1 for the first seven.
LINES = (
    *("#332288", "#CC6677", "#117733", "#AA4499", "#882255"),
    *("#999933", "#2E8B7B", "#88CCEE", "#DDCC77"),
)
MARKS = ("-", "--", ":", "-.")
WIDTH = 6.0
"""Inches: on a phone the text is then still readable."""

Runs = Mapping[str, SavedRun]


def curves(runs: Runs, key: str, label: str, percent: bool = False) -> Figure:
    """Draw one number over the rounds, a line per run, with the drifts marked."""
    figure, axes = _canvas(3.4)
    for number, (name, run) in enumerate(runs.items()):
        mark = MARKS[number // len(LINES) % len(MARKS)]
        style: Any = {"color": LINES[number % len(LINES)], "linewidth": 1.6}
        axes.plot(*run.series(key), mark, label=name, **style)
    first, *others = runs.values()
    if all(other.drifts == first.drifts for other in others):
        _mark_drifts(axes, first)
    axes.set_ylabel(label)
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    elif key == "num_clusters":
        count_in_integers(axes.yaxis)
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
        tested = [row.get("accuracy") is not None for row in run.rounds]
        _, values = run.series("accuracy")
        colour = LINES[number % len(LINES)]
        axes.plot(sent[tested] / 1e6, values, color=colour, label=name)
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
    scale = {"cmap": "cividis", "vmin": 0, "vmax": 1}
    image = _draw_clients(axes, run, table[order], **scale)
    bar = figure.colorbar(image, ax=axes)
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("clients, by mean accuracy")
    return figure


def membership(run: SavedRun) -> Figure:
    """Draw which cluster each client is in over the rounds: who moved when."""
    table = run.table("cluster")
    # Clients with the same history lie together.
    order = np.lexsort(np.nan_to_num(table, nan=-1).T[::-1])
    figure, axes = _canvas(4.0)
    names = np.unique(table[~np.isnan(table)]).astype(int)
    places = np.searchsorted(names, np.nan_to_num(table, nan=names.min(initial=0)))
    shown = np.where(np.isnan(table), np.nan, places % len(COLOURS))
    colours = ListedColormap(list(COLOURS))
    scale = {"cmap": colours, "vmin": -0.5, "vmax": len(COLOURS) - 0.5}
    _draw_clients(axes, run, shown[order], **scale)
    axes.set_ylabel("clients, by their history")
    return figure


def _draw_clients(
    axes: Axes, run: SavedRun, table: FloatArray, **scale: Any
) -> AxesImage:
    """Draw a number of each client (a row) in each round (a column)."""
    count, rounds = table.shape
    extent = (0.5, rounds + 0.5, count, 0)
    style: Any = {"aspect": "auto", "interpolation": "nearest", "extent": extent}
    image = axes.imshow(table, **style, **scale)
    _mark_drifts(axes, run, "white")
    return image


def cluster_sizes(run: SavedRun) -> Figure:
    """Draw how many clients each cluster has over the rounds."""
    width = max(len(row["cluster_sizes"]) for row in run.rounds)
    sizes = np.zeros((width, len(run.rounds)))
    for number, row in enumerate(run.rounds):
        sizes[: len(row["cluster_sizes"]), number] = row["cluster_sizes"]
    figure, axes = _canvas(2.8)
    rounds = [row["round"] for row in run.rounds]
    colours = [COLOURS[number % len(COLOURS)] for number in range(width)]
    axes.stackplot(rounds, sizes, colors=colours, step="mid", linewidth=0)
    axes.set_ylabel("clients in each cluster")
    axes.margins(0)
    _mark_drifts(axes, run, "white")
    return figure


def failures(run: SavedRun) -> Figure:
    """Draw how many results failed in each round, by reason."""
    found = [[each["reason"] for each in row["failures"]] for row in run.rounds]
    rounds = [row["round"] for row in run.rounds]
    figure, axes = _canvas(2.4)
    bottom = np.zeros(len(rounds))
    for number, reason in enumerate(sorted({each for row in found for each in row})):
        counts = np.array([row.count(reason) for row in found])
        colour = COLOURS[number % len(COLOURS)]
        axes.bar(rounds, counts, bottom=bottom, color=colour, label=reason, width=1.0)
        bottom += counts
    axes.set_ylabel("failed results")
    count_in_integers(axes.yaxis)
    axes.legend(frameon=False, fontsize=8)
    return figure


def class_distances(run: SavedRun) -> Figure:
    """Draw the distances of classifiers, a matrix per class: FedCCFA, Figure 7."""
    matrices = run.distances
    assert matrices is not None
    columns = min(5, len(matrices))
    rows = -(-len(matrices) // columns)
    figure = new_figure(WIDTH, 0.4 + rows * WIDTH / columns)
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
    figure = new_figure(WIDTH, height)
    axes = figure.add_subplot()
    axes.set_xlabel("round")
    count_in_integers(axes.xaxis)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _mark_drifts(axes: Axes, run: SavedRun, colour: str = "#666666") -> None:
    """Draw a line where the data changed, unless that is nearly everywhere."""
    if len(run.drifts) <= 40:
        style: Any = {"color": colour, "linewidth": 0.9, "linestyle": (0, (2, 2))}
        for round in run.drifts:
            axes.axvline(round - 0.5, **style)

"""Pictures of saved runs, each from the raw lines that a run leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator, PercentFormatter
from sklearn.isotonic import IsotonicRegression

from cfl_flower.types import FloatArray
from simulations.plotting import COLOURS, count_in_integers, new_figure
from simulations.saved import SavedRun

# Lines on white need contrast: 3 to 1 for the first seven.
LINES = (
    *("#332288", "#CC6677", "#117733", "#AA4499", "#882255"),
    *("#999933", "#2E8B7B", "#88CCEE", "#DDCC77"),
)
DASHES = ("-", "--", ":", "-.")
WIDTH = 6.0
"""Inches: on a phone the text is then still readable."""
MOST_MARKS = 40
"""Drifts that are shaded in a picture."""
GAP = 0.07
"""Between the labels of lines, as a share of the axes' height."""


@dataclass(frozen=True)
class Line:
    """A method as pictures show it: the runs of its seeds, and its colour."""

    label: str
    runs: Sequence[SavedRun]
    number: int
    """Its place among the methods of the page, which all pictures colour alike."""

    @property
    def style(self) -> dict[str, Any]:
        """The line's colour and dashes."""
        colour = LINES[self.number % len(LINES)]
        dashes = DASHES[self.number // len(LINES) % len(DASHES)]
        return {"color": colour, "linestyle": dashes, "linewidth": 1.6}

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


def curves(lines: Lines, key: str, label: str, percent: bool = False) -> Figure:
    """Draw one number over the rounds: each method's mean over seeds, and its spread.

    The band is a standard deviation on either side; rounds in which the data changed
    are shaded if they are the same for all runs.
    """
    figure, axes = _canvas(3.4)
    ends = [e for line in lines for e in _draw_mean(axes, line, *line.series(key))]
    changes = {tuple(run.drifts) for line in lines for run in line.runs}
    if len(changes) == 1:
        _shade_drifts(axes, *changes)
    axes.set_ylabel(label)
    if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    elif key == "num_clusters":
        count_in_integers(axes.yaxis)
    _label_ends(axes, ends)
    return figure


def accuracy(lines: Lines) -> Figure:
    """Draw the accuracy over all samples."""
    return curves(lines, "accuracy", "accuracy over all samples", percent=True)


def traffic(lines: Lines) -> Figure:
    """Draw the accuracy over the bytes sent so far, both ways."""
    figure, axes = _canvas(3.4)
    ends: list[End] = []
    for line in lines:
        rounds, values = line.series("accuracy")
        ends += _draw_mean(axes, line, line.sent(rounds), values)
    axes.set_xlabel("megabytes sent, up and down")
    axes.set_ylabel("accuracy over all samples")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator())
    _label_ends(axes, ends)
    return figure


End: TypeAlias = tuple[Line, float, float]
"""A method's line, and the place where it ends."""


def _draw_mean(
    axes: Axes, line: Line, x: FloatArray, values: FloatArray
) -> Iterator[End]:
    """Draw the mean over seeds, values of shape (seeds, n), and its deviation."""
    mean = values.mean(axis=0)
    axes.plot(x, mean, label=line.label, **line.style)
    if len(values) > 1:
        spread = values.std(axis=0, ddof=1)
        low, high, colour = mean - spread, mean + spread, line.style["color"]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    if len(x):
        yield line, float(x[-1]), float(mean[-1])


def _label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Name each line where it ends, the names apart from each other."""
    if len(ends) < 2:
        return
    low, high = axes.get_ylim()
    ends = sorted(ends, key=lambda end: end[2])
    places = spread_out([(y - low) / (high - low) for *_, y in ends], GAP)
    for (line, x, y), place in zip(ends, places, strict=True):
        leader = {"arrowstyle": "-", "linewidth": 0.8, "color": line.style["color"]}
        axes.annotate(
            line.label,
            xy=(x, y),
            xytext=(1.04, place),
            textcoords="axes fraction",
            fontsize=9,
            verticalalignment="center",
            arrowprops=leader,
        )


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Move ascending heights as far apart as a gap, and as little as that takes.

    Examples
    --------
    >>> spread_out([0.1, 0.5, 0.5], 0.2)
    [0.1, 0.4, 0.6]
    """
    steps = gap * np.arange(len(heights))
    # Heights less their steps must not fall: the nearest such sequence is isotonic.
    found = IsotonicRegression().fit_transform(steps, np.array(heights) - steps)
    return [round(float(each), 6) for each in found + steps]


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
    """Draw the cluster of each client over the rounds, beside its true concept.

    Clients of one concept lie together; devices with data of their own have none.
    """
    table = run.table("cluster")
    places = np.unique(table, return_inverse=True)[1]
    clusters = np.where(np.isnan(table), np.nan, places.reshape(table.shape))
    panels = {"cluster": clusters}
    if not run.on_own_data:
        panels = {"true concept": run.concepts().astype(float), **panels}
    # The last key decides first: the earliest concept, then later ones, then clusters.
    keys = [column for panel in panels.values() for column in np.nan_to_num(panel).T]
    order = np.lexsort(keys[::-1])
    figure = new_figure(WIDTH, 4.0)
    shared = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    scale = {
        "cmap": ListedColormap(list(COLOURS)),
        "vmin": -0.5,
        "vmax": len(COLOURS) - 0.5,
    }
    for axes, (title, panel) in zip(shared, panels.items(), strict=True):
        _draw_clients(axes, run, panel[order] % len(COLOURS), **scale)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("round")
        count_in_integers(axes.xaxis)
    shared[0].set_ylabel("clients, by concept" if len(panels) > 1 else "clients")
    return figure


def _draw_clients(
    axes: Axes, run: SavedRun, table: FloatArray, **scale: Any
) -> AxesImage:
    """Draw a number of each client (a row) in each round (a column)."""
    count, rounds = table.shape
    extent = (0.5, rounds + 0.5, count, 0)
    style: Any = {"aspect": "auto", "interpolation": "nearest", "extent": extent}
    image = axes.imshow(table, **style, **scale)
    _mark_drifts(axes, run)
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
    _mark_drifts(axes, run)
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


def _mark_drifts(axes: Axes, run: SavedRun) -> None:
    """Draw a line in a picture of areas where the data changed."""
    if len(run.drifts) <= MOST_MARKS:
        style: Any = {"color": "white", "linewidth": 0.9, "linestyle": (0, (2, 2))}
        for round in run.drifts:
            axes.axvline(round - 0.5, **style)


def _shade_drifts(axes: Axes, drifts: Sequence[int]) -> None:
    """Shade the rounds in which the data changed, unless those are nearly all."""
    if len(drifts) <= MOST_MARKS:
        for round in drifts:
            axes.axvspan(round - 0.5, round + 0.5, color="#444444", alpha=0.18, lw=0)

"""A saved StoCFL run in a picture: who is like whom, and how the clusters came about.

    python -m simulations.directions_map outputs/my-run
    python -m simulations.directions_map outputs/my-run --output /tmp/run.svg

Above, each client's direction as a point (t-SNE on cosine distances), coloured by its
true concept, where that is known, and by its cluster; below, the number of clusters and
the sum of the cosines of all pairs (eq. 2) over the rounds: the paper's Figures 3, 8.
Exit codes as `simulations.run`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from sklearn.manifold import TSNE

from cfl_flower.clustering.similarity import cosine_matrix
from cfl_flower.data.worlds.timeline import Timeline
from cfl_flower.seeding import one_thread
from cfl_flower.settings import require
from cfl_flower.types import FloatArray, IntArray, Json, Vector
from simulations.reporting.plotting import (
    AREAS,
    check_format,
    count_in_integers,
    new_figure,
    write,
)
from simulations.reporting.saved import load_run
from simulations.shell.terminal import Parser, command
from strategies.stocfl.method import StoCFLState

FEWEST = 4
"""Clients that make a map."""


def embed(directions: Sequence[Vector], seed: int) -> FloatArray:
    """Return a place in the plane for each of n directions, by t-SNE: shape (n, 2)."""
    gaps = 1 - cosine_matrix(directions)
    # As many neighbours as scikit-learn takes, or a third of a small number.
    perplexity = min(30.0, (len(gaps) - 1) / 3)
    method = TSNE(
        metric="precomputed", init="random", perplexity=perplexity, random_state=seed
    )
    with one_thread():
        places: FloatArray = method.fit_transform(np.maximum(gaps, 0))
    return places


def concepts(timeline: Timeline, state: StoCFLState, rows: IntArray) -> IntArray:
    """Return the true concepts that clients had when they were asked."""
    rounds = state.reported[rows] + 1
    clients = np.array([int(state.clients[row]) for row in rows])
    found = np.zeros(len(rows), np.int64)
    for server_round in np.unique(rounds):
        here = rounds == server_round
        found[here] = timeline.concepts(int(server_round))[clients[here]]
    return found


def draw(
    places: FloatArray,
    truth: IntArray | None,
    clusters: IntArray,
    rounds: Sequence[Mapping[str, Json]],
) -> Figure:
    """Return the picture of n clients, from their places, of shape (n, 2).

    Their true concepts, of shape (n,) as their clusters, are None where nobody knows
    them: on real devices. The rounds are the lines of rounds.jsonl.
    """
    figure = new_figure(9, 7)
    grid = figure.add_gridspec(2, 2, height_ratios=(2, 1))
    if truth is not None:
        _scatter(figure.add_subplot(grid[0, 0]), places, truth, "true concept")
    _scatter(figure.add_subplot(grid[0, 1]), places, clusters, "cluster")
    x = [row["round"] for row in rounds]
    for column, key, name in (
        (0, "found", "clusters of the clients seen"),
        (1, "objective", "sum of cosines between clusters, eq. 2"),
    ):
        panel = figure.add_subplot(grid[1, column])
        panel.plot(x, [row[key] for row in rounds], color=AREAS[1])
        panel.set_title(name, fontsize=10)
        panel.set_xlabel("round")
        count_in_integers(panel.xaxis, 10)
        if key == "found":
            count_in_integers(panel.yaxis)
    return figure


def _scatter(panel: Axes, places: FloatArray, labels: IntArray, name: str) -> None:
    kinds = np.unique(labels)
    for number, kind in enumerate(kinds):
        here = places[labels == kind]
        colour = AREAS[number % len(AREAS)]
        mark = "os^Dv"[number // len(AREAS) % 5]
        x, y = here.T
        panel.scatter(x, y, s=14, color=colour, marker=mark, label=str(kind))
    panel.set_title(f"{len(places)} clients by {name}: {len(kinds)}", fontsize=10)
    panel.set_xticks([])
    panel.set_yticks([])
    if len(kinds) <= len(AREAS):
        panel.legend(fontsize=8)


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    parser = Parser("directions_map", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's output_dir")
    parser.add_argument("--output", type=Path, help="RUN/directions.png")
    asked = parser.parse_args(arguments)
    output: Path = asked.output or asked.run / "directions.png"
    check_format(output)
    saved = load_run(asked.run)
    done, state = saved.load_state()
    allowed = "the output_dir of a run of stocfl"
    require(isinstance(state, StoCFLState), "strategy", saved.strategy, allowed)
    assert isinstance(state, StoCFLState)
    rows = np.flatnonzero(state.known())
    allowed = f"a run that has met at least {FEWEST} clients"
    require(len(rows) >= FEWEST, "RUN", asked.run, allowed)
    directions = [state.representations[row] for row in rows]
    places = embed(directions, int(saved.resolved["seed"]))
    truth = None if saved.on_own_data else concepts(saved.timeline, state, rows)
    rounds = [row for row in saved.rounds if row["round"] <= done]
    write(draw(places, truth, state.clusters[rows], rounds), output)
    Console().print(f"saved in {output}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

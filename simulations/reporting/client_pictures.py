"""Of one run: who did well, whose classifiers differ, and what classes it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.analysis.scorecards import Table
from cfl_flower.types import client_order
from simulations.reporting.charts import (
    HALF,
    Chart,
    Spec,
    gradient,
    image,
    layer,
    number,
    place,
    rounds_axis,
    slug,
)
from simulations.reporting.curves import MOST_MARKS
from simulations.reporting.figures import Picture

NO_LABELS: Any = {"labels": False, "ticks": False, "domain": False, "grid": False}

MOST_CLIENTS = 12
"""Clients up to which each has lines of its own in the table of classes."""


def own_pictures(name: str, run: SavedRun) -> list[Picture]:
    """Return the figures of one run; what was not measured has none."""
    wanted: list[tuple[Any, Callable[[SavedRun], Chart], str]] = [
        (run.tests, client_accuracy, "accuracy of each client in each round"),
        (
            run.distances is not None,
            class_distances,
            "distances of the classifiers that were clustered last, class by class; "
            "white where a client has no samples",
        ),
    ]
    return [
        Picture(f"{slug(name)}-{slug(draw.__name__)}", f"{name}: {what}.", draw(run))
        for there, draw, what in wanted
        if there
    ]


def _mark_drifts(run: SavedRun, x: Spec) -> Spec:
    """Return lines in a picture of areas where the data changed."""
    drifts = run.drifts if len(run.drifts) <= MOST_MARKS else []
    rows = [{"round": server_round - 0.5} for server_round in drifts]
    return layer("rule", {"x": x}, rows, color="white", strokeDash=[2, 2])


def client_accuracy(run: SavedRun) -> Chart:
    """Draw every client's accuracy in every round, the best clients on top."""
    table = run.table("accuracy")
    order = np.argsort(-np.nan_to_num(np.nanmean(table, axis=1)), kind="stable")
    count, rounds = table.shape
    x = rounds_axis(0.5, rounds + 0.5)
    y = number("place", (count, 0), title="clients, by mean accuracy", grid=False)
    legend = gradient((0, 1), title=None, format=".0%")
    corners = {"round": 0.5, "end": rounds + 0.5, "place": 0, "below": count}
    drawn = place([{**corners, "url": image(table[order], (0, 1))}], x, y)
    layers = [drawn, _mark_drifts(run, x), legend]
    return Chart([], layers, 300, tells=False, width=HALF)


def class_distances(run: SavedRun) -> Chart:
    """Draw the distances of classifiers, a matrix per class: FedCCFA, Figure 7."""
    matrices = run.distances
    assert matrices is not None
    columns = min(5, len(matrices))
    lines = -(-len(matrices) // columns)
    span = (0.0, max(float(np.nanmax(matrices, initial=0.0)), 1e-6))
    rows = [
        {
            "round": label % columns,
            "end": label % columns + 0.92,
            "place": label // columns + 0.15,
            "below": label // columns + 1,
            "url": image(matrix, span),
            "class": f"class {label}",
        }
        for label, matrix in enumerate(matrices)
    ]
    x = number("round", (0, columns), title=None, **NO_LABELS)
    y = number("place", (lines, 0), title=None, **NO_LABELS)
    name = {"x": x, "y": y, "text": {"field": "class"}}
    legend = gradient(span, title="distance")
    layers = [place(rows, x, y), layer("text", name, rows, align="left", dy=-7), legend]
    return Chart([], layers, 60 + 80 * lines, tells=False, width=HALF)


def class_table(run: SavedRun) -> Table | None:
    """Return the results of each class in the last test, by cluster and by client.

    None without `per_class`.
    """
    rows = [row for row in run.tests if row.get("per_class")]
    last = [row for row in rows if row["round"] == rows[-1]["round"]]
    found = run.resolved["dataset"].get("names") or []
    names = found or [*range(len(last[0]["per_class"]) if last else 0)]
    # Files from elsewhere may have anything there.
    counted = {len(row["per_class"]) for row in last}
    if not isinstance(names, list) or counted != {len(names)}:
        return None
    kinds = ["cluster", "client"] if len(last) <= MOST_CLIENTS else ["cluster"]
    parts = [
        pd.DataFrame(row["per_class"]).assign(who=f"{kind} {row[kind]}", label=names)
        for kind in kinds
        for row in sorted(last, key=lambda row: client_order(row[kind]))
    ]
    total = pd.concat(parts).groupby(["who", "label"], sort=False).sum()
    shares = {
        "recall": total.correct / total.support,
        "precision": total.correct / total.predicted,
        "F1": 2 * total.correct / (total.support + total.predicted),
    }
    written = (100 * pd.DataFrame(shares)).map("{:.1f}".format).replace("nan", "-")
    written.insert(0, "test samples", total.support.astype(str))
    title = f"classes in the test of round {last[0]['round']}, in %"
    headings = ["of", "class", *written]
    lines = [list(map(str, each)) for each in written.reset_index().to_numpy()]
    return Table(title, headings, lines)

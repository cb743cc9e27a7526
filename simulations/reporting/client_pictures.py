"""Pictures of one run: who was in which cluster, whose result failed, who did well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.types import FloatArray
from simulations.reporting.charts import (
    CIVIDIS,
    COLOURS,
    Chart,
    Picture,
    Spec,
    gradient,
    image,
    layer,
    number,
    place,
    rounds_axis,
    slug,
    spans,
    tooltip_of,
)
from simulations.reporting.figures import MOST_MARKS
from simulations.reporting.rivers import colour, match_clusters, true_groups

MOST_BARS = 6000
"""In a chart; of more clients than that leaves room for, every k-th is shown."""
APART = 1000
"""What numbers of clusters are multiplied by, so that one of a colour can be added."""
COLOUR: Spec = {"field": "colour", "type": "nominal", "scale": None}
ABOVE: Any = {"align": "left", "dy": -7}
NO_LABELS: Any = {"labels": False, "ticks": False, "domain": False, "grid": False}


def own_pictures(name: str, run: SavedRun) -> list[Picture]:
    """Return the figures of one run; what was not measured has none."""
    count = sum(len(row["failures"]) for row in run.rounds)
    wanted: list[tuple[Any, Callable[[SavedRun], Chart], str]] = [
        (
            run.tests,
            membership,
            "the cluster of each client, in the colour of the true concept of most of "
            "its clients",
        ),
        (run.tests, client_accuracy, "accuracy of each client in each round"),
        (
            run.distances is not None,
            class_distances,
            "distances of the classifiers that were clustered last, class by class; "
            "white where a client has no samples",
        ),
        (count, failures, f"{count} failed results, by reason"),
    ]
    return [
        Picture(f"{slug(name)}-{slug(draw.__name__)}", f"{name}: {what}.", draw(run))
        for there, draw, what in wanted
        if there
    ]


def membership(run: SavedRun) -> Chart:
    """Draw the cluster of each client over the rounds, beside its true concept.

    Clients of one concept lie together; devices with data of their own have none.
    """
    clusters = run.table("cluster")
    # A number and its colour in one, as a bar is of one of each.
    panels = {"cluster": clusters * APART + match_clusters(run)}
    if not run.on_own_data:
        concepts = run.concepts() * APART + true_groups(run)
        panels = {"true concept": concepts, **panels}
    # The last key decides first: the earliest concept, then later ones, then clusters.
    keys = [column for panel in panels.values() for column in np.nan_to_num(panel).T]
    order = np.lexsort(keys[::-1])
    bars = sum(len(list(spans(row))) for panel in panels.values() for row in panel)
    step = -(-bars // MOST_BARS)
    shown = order[::step]
    title = "clients, by concept" if len(panels) > 1 else "clients"
    title += f" (one of {step} is drawn)" if step > 1 else ""
    y = number("place", (len(shown), 0), title=title, **NO_LABELS)
    last = clusters.shape[1]
    apart = last + max(1, round(0.06 * last))  # a single view is as wide as the page
    x = _rounds_of_panels(last, apart, len(panels))
    layers = [
        each
        for number_, (title, panel) in enumerate(panels.items())
        for each in _panel(run, title, panel, shown, number_ * apart, {"x": x, "y": y})
    ]
    return Chart([], layers, 380)


def _rounds_of_panels(last: int, apart: int, panels: int) -> Spec:
    """Return an axis that counts the rounds of panels, each ``apart`` further on."""
    step = max(1, round(last / 5))
    ticks = range(step, last + 1, step)
    values = [float(tick + at * apart) for at in range(panels) for tick in ticks]
    shown = f"format(datum.value > {apart} ? datum.value - {apart} : datum.value, 'd')"
    domain = (0.5, last + (panels - 1) * apart + 0.5)
    axis: Any = {"values": values, "labelExpr": shown, "labelOverlap": False}
    axis |= {"tickCount": len(values), "title": "round", "grid": False, "domain": False}
    return number("round", domain, **axis)


def _panel(
    run: SavedRun,
    title: str,
    table: FloatArray,
    shown: Iterable[int],
    shift: int,
    axes: Spec,
) -> list[Spec]:
    """Draw a bar for every stay of a client with one number, NaN apart."""
    bars = [
        {
            "round": first + 0.5 + shift,
            "end": last + 1.5 + shift,
            "place": place,
            "below": place + 1,
            "client": str(run.clients[client]),
            "rounds": _from_to(first + 1, last + 1),
            "value": int(value // APART),
            "colour": colour(value % APART),
        }
        for place, client in enumerate(shown)
        for first, last, value in spans(table[client])
    ]
    bar = {**axes, "x2": {"field": "end"}, "y2": {"field": "below"}, "color": COLOUR}
    tooltip = tooltip_of(client="client", rounds="rounds", value=title)
    name = {"x": axes["x"], "y": {"value": 0}}
    return [
        layer("rect", {**bar, "tooltip": tooltip}, bars),
        _mark_drifts(run, axes["x"], shift),
        layer("text", name, [{"round": 0.5 + shift}], text=title, **ABOVE),
    ]


def _from_to(first: int, last: int) -> str:
    return f"{first} to {last}" if first < last else str(first)


def _mark_drifts(run: SavedRun, x: Spec, shift: int = 0) -> Spec:
    """Return lines in a picture of areas where the data changed."""
    drifts = run.drifts if len(run.drifts) <= MOST_MARKS else []
    rows = [{"round": server_round - 0.5 + shift} for server_round in drifts]
    return layer("rule", {"x": x}, rows, color="white", strokeDash=[2, 2])


def failures(run: SavedRun) -> Chart:
    """Draw how many results failed in each round, by reason."""
    rows = [
        {"round": row["round"], "reason": reason, "results": count}
        for row in run.rounds
        for reason, count in Counter(each["reason"] for each in row["failures"]).items()
    ]
    reasons = sorted({row["reason"] for row in rows})
    scale = {"domain": reasons, "range": list(COLOURS)}
    below = {"orient": "bottom", "title": None, "columns": 1, "labelLimit": 500}
    done = [row["round"] for row in run.rounds]
    axis = {"labelAngle": 0, "title": "round", "labelOverlap": True}
    bar = {
        "x": {"field": "round", "scale": {"domain": done}, "axis": axis},
        "y": {
            **number("results", title="failed results", tickMinStep=1),
            "stack": True,
        },
        "color": {"field": "reason", "scale": scale, "legend": below},
        "tooltip": tooltip_of(round="round", reason="reason", results="failed results"),
    }
    return Chart(rows, [layer("bar", bar)], 260)


def client_accuracy(run: SavedRun) -> Chart:
    """Draw every client's accuracy in every round, the best clients on top."""
    table = run.table("accuracy")
    order = np.argsort(-np.nan_to_num(np.nanmean(table, axis=1)), kind="stable")
    count, rounds = table.shape
    url = image(table[order], (0, 1), CIVIDIS)
    rows = [{"round": 0.5, "end": rounds + 0.5, "place": 0, "below": count, "url": url}]
    x = rounds_axis(0.5, rounds + 0.5)
    y = number("place", (count, 0), title="clients, by mean accuracy", grid=False)
    legend = gradient((0, 1), "cividis", "linear", title=None, format=".0%")
    layers = [place(rows, x, y), _mark_drifts(run, x), legend]
    return Chart([], layers, 380, tells=False)


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
            "url": image(matrix, span, CIVIDIS),
            "class": f"class {label}",
        }
        for label, matrix in enumerate(matrices)
    ]
    x = number("round", (0, columns), title=None, **NO_LABELS)
    y = number("place", (lines, 0), title=None, **NO_LABELS)
    name = {"x": x, "y": y, "text": {"field": "class"}}
    legend = gradient(span, "cividis", "linear", title="distance")
    layers = [place(rows, x, y), layer("text", name, rows, align="left", dy=-7), legend]
    return Chart([], layers, 60 + 105 * lines, tells=False)

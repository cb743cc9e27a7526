"""Clusters as a river: who is with whom at a few rounds, and who moves between them.

Clusters have no lasting numbers: k-means counts them anew each time. Here each has the
colour of the true concept that most of its clients hold, or else the one that it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.types import FloatArray, IntArray
from simulations.reporting.charts import (
    COLOURS,
    GREY,
    HALF,
    Chart,
    Spec,
    layer,
    number,
)

MOST_COLUMNS = 10
"""Rounds of a river."""
MOST_CLUSTERS = 20
"""Of a river."""
GAP = 0.02
"""Between the clusters of a round, as a share of all clients."""
MOSTLY = 0.8
"""Share of a cluster's clients that makes a concept the cluster's."""
THICK = 0.07
"""Half the width of a cluster, as a share of the way to the next round."""
WITH_TINTS = (
    *COLOURS[:-1],
    *("#7d72b3", "#df9da8", "#67a87d", "#e9dfa8", "#b3dff4", "#b37292"),
    *("#88c9be", "#bebe7d", "#c988be", "#9dbedf", "#9d675c", COLOURS[-1]),
)
"""The colours of groups: light ones, too, as a drift may double the concepts."""


def shares_clusters(run: SavedRun) -> bool:
    """Return whether some clients, and not all, were in one of a few clusters."""
    sizes = [row["cluster_sizes"] or () for row in run.rounds]
    few = all(sum(map(bool, each)) <= MOST_CLUSTERS for each in sizes)
    # Clients that join or leave change how many clusters of their own there are.
    return few and any(max(each, default=0) not in (0, 1, sum(each)) for each in sizes)


def colour(number: int) -> str:
    """Return the colour of a number of `match_clusters`; high ones share the last."""
    return WITH_TINTS[min(number, len(WITH_TINTS) - 1)]


def true_groups(run: SavedRun) -> IntArray:
    """Return the place of each client's true concept among all, in each round.

    Shape (clients, rounds).
    """
    concepts = run.concepts()
    _, places = np.unique(concepts, return_inverse=True)
    return places.reshape(concepts.shape)


def match_clusters(run: SavedRun) -> IntArray:
    """Return a lasting number of each client's cluster in each round.

    It is the place of the true concept that most clients of the cluster hold, among all
    concepts. Of several clusters of one concept the one with the most of its clients
    has that; the others have further numbers, which they keep while their clients stay
    together (Kuhn, 1955, The Hungarian method for the assignment problem). Shape
    (clients, rounds), -1 before the first test of a client.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - slow to import

    clusters = run.table("cluster")
    concepts = np.zeros(clusters.shape, np.int64)
    count = 0
    if not run.on_own_data:
        concepts = true_groups(run)
        count = int(concepts.max()) + 1
    found = np.full(clusters.shape, -1)
    before = np.full(len(clusters), -1)
    for column in range(clusters.shape[1]):
        tested = ~np.isnan(clusters[:, column])
        names, own = np.unique(clusters[tested, column], return_inverse=True)
        # All that may be kept, and as many new ones as there are clusters.
        worth = np.zeros((len(names), max(count, int(before.max()) + 1) + len(names)))
        for name in range(len(names)):
            members = np.flatnonzero(tested)[own == name]
            worth[name, count:] += 0.25
            kept = before[members]
            np.add.at(worth[name], kept[kept >= 0], 0.5)
            shares = np.bincount(concepts[members, column], minlength=count)
            most = shares >= MOSTLY * shares.max()
            # A concept that few of its clients hold is not what the cluster stands for.
            worth[name, :count] *= most[:count]
            worth[name, :count] += (shares * most)[:count]
        _, chosen = linear_sum_assignment(worth, maximize=True)
        before[tested] = chosen[own]
        found[:, column] = before
    return found


def choose_rounds(tested: Sequence[int], drifts: Sequence[int]) -> list[int]:
    """Return the rounds of a river, of those that were tested.

    The first and the last, the last before and the first after each drift, and one amid
    each time without; with many drifts, rounds that are equally far apart.

    Examples
    --------
    >>> choose_rounds(range(1, 25), [13])
    [1, 6, 12, 13, 18, 24]
    >>> choose_rounds(range(1, 10), range(2, 10))
    [1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    cuts = np.unique(np.searchsorted(tested, drifts))
    periods = [each for each in np.split(np.array(tested), cuts) if len(each)]
    edges = {int(each) for period in periods for each in (period[0], period[-1])}
    amid = {int(period[(len(period) - 1) // 2]) for period in periods}
    if len(edges | amid) <= MOST_COLUMNS:
        return sorted(edges | amid)
    if len(edges) <= MOST_COLUMNS:
        return sorted(edges)
    places = np.linspace(0, len(tested) - 1, MOST_COLUMNS).round()
    return [int(tested[int(place)]) for place in places]


def river(run: SavedRun, groups: IntArray) -> Chart:
    """Draw the groups of clients at a few rounds, and the ways between them.

    ``groups`` has a number for each client and round, as `match_clusters` gives it.
    """
    rounds = choose_rounds(sorted({row["round"] for row in run.tests}), run.drifts)
    columns = groups[:, [each - 1 for each in rounds]]
    # A client that was not tested by then is in none of the columns.
    columns = columns[(columns >= 0).all(axis=1)]
    most = len(columns)
    gap = round(GAP * most, 2)
    blocks = [
        row
        for at, column in enumerate(columns.T)
        for row in _blocks(at, column, gap, rounds[at])
    ]
    ways = [
        row
        for at, both in enumerate(pairwise(columns.T))
        for row in _ways(at, np.stack(both), gap)
    ]
    places = list(range(len(rounds)))
    axis: Spec = {"values": places, "labelExpr": f"'' + {rounds}[datum.value]"}
    axis |= {"title": "round", "grid": False, "domain": False, "ticks": False}
    axis |= {"labelOverlap": False, "tickCount": len(rounds)}
    x = number("at", (-0.1, len(rounds) - 0.9), **axis)
    hidden = {"labels": False, "ticks": False, "domain": False, "grid": False}
    highest = max(block["high"] for block in blocks)
    y = number("low", (0, highest), title=f"{most} clients", **hidden)
    few = run.drifts if len(run.drifts) < MOST_COLUMNS else []
    cuts = np.unique(np.searchsorted(rounds, few)).tolist()
    drifts = [{"at": cut - 0.5} for cut in cuts if 0 < cut < len(rounds)]
    shared: Spec = {"x": x, "y": y, "y2": {"field": "high"}}
    colours = {"field": "colour", "type": "nominal", "scale": None}
    area = {**shared, "color": colours, "detail": {"field": "way"}}
    area["opacity"] = {"field": "opacity", "type": "quantitative", "scale": None}
    rect = {**shared, "x2": {"field": "end"}, "color": colours}
    rect["tooltip"] = [{"field": k, "title": k} for k in ("clients", "round")]
    top = {"x": x, "y": {"value": 0}}
    layers = [
        layer("area", area, ways),
        layer("rect", rect, blocks),
        layer("rule", {"x": x}, drifts, color=GREY, strokeDash=[3, 3]),
        layer("text", top, drifts, text="drift", dy=-8, fontSize=11),
    ]
    return Chart([], layers, 230, width=HALF)


def _stack(groups: IntArray, sizes: IntArray, gap: float) -> FloatArray:
    """Return where parts of groups begin, in clients, one above the other, (n,)."""
    order = np.argsort(groups, kind="stable")
    _, place = np.unique(groups, return_inverse=True)
    lows = gap * place
    lows[order] += np.cumsum(sizes[order]) - sizes[order]
    return lows


def _blocks(
    at: int, column: IntArray, gap: float, server_round: int
) -> Iterator[dict[str, Any]]:
    """Yield a block for each group of a round, one above the other."""
    groups, sizes = np.unique(column, return_counts=True)
    lows = _stack(groups, sizes, gap).tolist()
    for group, size, low in zip(groups.tolist(), sizes.tolist(), lows, strict=True):
        yield {
            "at": at - THICK,
            "end": at + THICK,
            "low": low,
            "high": low + size,
            "colour": colour(group),
            "clients": size,
            "round": server_round,
        }


def _ways(at: int, both: IntArray, gap: float) -> Iterator[dict[str, Any]]:
    """Yield the edges of an area for each pair of groups that have clients in common.

    ``both`` has the groups of clients at a round and the next, (2, n). Those of clients
    that leave the group with most of their old one are darker.
    """
    pairs, sizes = np.unique(both, axis=1, return_counts=True)
    left, right = (_stack(groups, sizes, gap).tolist() for groups in pairs)
    largest = np.zeros(pairs.max() + 1)
    np.maximum.at(largest, pairs[0], sizes)
    opacities = np.where(sizes < largest[pairs[0]], 0.65, 0.3).tolist()
    for way, (source, target) in enumerate(pairs.T.tolist()):
        for place, low in ((at + THICK, left[way]), (at + 1 - THICK, right[way])):
            yield {
                "way": f"{at}-{source}-{target}",
                "colour": colour(source),
                "opacity": opacities[way],
                "at": place,
                "low": low,
                "high": low + int(sizes[way]),
            }

"""In what clients differ, in tables, and what method to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cfl_flower.clustering.differences import (
    COMPARED,
    KINDS,
    differences,
    sums_by_label,
)
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.types import BoolArray, FloatArray, IntArray

LEVEL = 0.05
"""Share of what is found different that may not be (Benjamini and Hochberg, 1995)."""

ADVICE = {
    "labels": "clients hold other labels: label shares and fine-tuning do as well as "
    "clusters (fedavg_ls, fedavg_ft); of clusters fielding",
    "inputs": "inputs look otherwise: fine-tuning (fedavg_ft), of clusters cfl; where "
    "devices cannot train feddrift or scaffold",
    "relation": "labels mean something else: clusters (fedccfa, cfl), or fine-tuning "
    "for a few labels and 200 samples; where devices cannot train feddrift",
    "": "no difference that these samples show: fedavg",
}
"""What docs/choosing.md says of what clients differ in, or change in."""


def diagnose(periods: Sequence[Sequence[FloatArray]]) -> FloatArray:
    """Compare clients with each other in periods, and with themselves before.

    ``periods`` have the sums of each client's samples (`clustering.differences`).
    Returns p-values, corrected for all tests there are, of shape (periods, clients,
    clients, 3): on the diagonal those of a client and itself before. They are 1 where
    nothing can be told.
    """
    from scipy.stats import false_discovery_control

    count = len(periods[0])
    found = np.ones((len(periods), count, count, len(KINDS)))
    for period, sums in enumerate(periods):
        for one, other in combinations(range(count), 2):
            tests = differences(sums[one], sums[other])
            found[period, one, other] = tests
            found[period, other, one] = tests
        for client in range(count if period else 0):
            before = periods[period - 1][client]
            found[period, client, client] = differences(sums[client], before)
    corrected: FloatArray = false_discovery_control(found.ravel())
    return corrected.reshape(found.shape)


def find_groups(differ: BoolArray) -> IntArray:
    """Return the group of each client, from 1 on: in one, few pairs differ.

    By average linkage, from all pairs, shape (clients, clients): a pair that is found
    different by chance, or not found, does not change the groups.
    """
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(differ) < 2:
        return np.ones(len(differ), np.int64)
    distances = differ[np.triu_indices(len(differ), 1)].astype(float)
    return fcluster(linkage(distances, "average"), 0.5, "distance")


def sums_of(
    stream: Stream, clients: int, rounds: Mapping[str, int]
) -> dict[str, dict[str, FloatArray]]:
    """Return the sums of the first clients' samples, by number, in named rounds."""
    found: dict[str, dict[str, FloatArray]] = {}
    for heading, server_round in rounds.items():
        own = {}
        for client in range(min(COMPARED, clients)):
            view = stream.view(client, server_round)
            x = view.train()[0].numpy()
            own[str(client)] = sums_by_label(x, view.labels, len(view.relabel))
        found[heading] = own
    return found


def show_diagnosis(
    found: Mapping[str, Mapping[str, FloatArray]], console: Console
) -> None:
    """Print in what clients differ, the groups of each kind, and what to take.

    ``found`` has the sums of each client, by name, in each period. Clients that some
    period lacks are left out.
    """
    say = partial(console.print, highlight=False, soft_wrap=True, markup=False)
    periods = list(found.values())
    names = [name for name in periods[0] if all(name in of for of in periods)]
    if not names:
        say("no client says in what its data differ")
        return
    kinds = set()
    tests = diagnose([[of[name] for name in names] for of in periods])
    for (heading, sums), of in zip(found.items(), tests, strict=True):
        differ = of < LEVEL
        before = np.diagonal(differ).T
        others = differ.sum(axis=1) - before
        table = Table("client", "samples", *KINDS, "changed", box=None)
        table.title = f"{heading}: other clients that one differs from"
        for name, counts, changed in zip(names, others, before, strict=True):
            words = ", ".join(KINDS[kind] for kind in np.flatnonzero(changed))
            samples = int(sums[name][:, 0, 0].sum())
            table.add_row(escape(name), *map(str, (samples, *counts, words)))
        say(table)
        for kind, what in enumerate(KINDS):
            members = find_groups(differ[:, :, kind])
            groups = max(members, default=0)
            say(f"groups by {what}: {groups} ({' '.join(map(str, members))})")
            # Some of many are found by chance.
            if groups > 1 or before[:, kind].mean() > 2 * LEVEL:
                kinds.add(what)
    for what in sorted(kinds) or [""]:
        say(f"{ADVICE[what]} (docs/choosing.md)")

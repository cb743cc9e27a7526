"""In what clients differ, before anything is trained: labels, inputs or their relation.

Labels by the chi-squared test of two histograms. Inputs by a classifier two-sample test
(Lopez-Paz and Oquab, 2017), on samples with equal counts of each label: a forest has to
tell whose they are. Their relation by cross-prediction: where the same inputs mean
different labels, a forest of one's own samples is surer of them than one of both
clients' samples. Forests learn one half and predict the other; t-tests compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations

import numpy as np
from rich.console import Console
from rich.table import Table

from cfl_flower.data.worlds.stream import Stream
from cfl_flower.data.worlds.view import View
from cfl_flower.types import FloatArray, IntArray
from simulations.periods import Period

KINDS = ("labels", "inputs", "relation")

MOST_CLIENTS = 12
"""The first clients, which are compared with each other."""

MOST_SAMPLES = 200
"""Samples of each of two clients that forests see."""

LEAST_SAMPLES = 20
"""Fewer, with the same labels, tell nothing of inputs and relations."""

TREES = 30

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


def diagnose(stream: Stream, starts: Sequence[int]) -> FloatArray:
    """Compare clients with each other in rounds, and with themselves in the one before.

    Returns p-values, corrected for all tests there are, of shape (rounds, clients,
    clients, 3): on the diagonal those of a client and itself before. They are 1 where
    nothing can be told.
    """
    from scipy.stats import false_discovery_control

    count = min(MOST_CLIENTS, stream.timeline.world(1).clients)
    held = [[stream.view(client, r) for client in range(count)] for r in starts]
    places = [(0, *pair) for pair in combinations(range(count), 2)]
    for period in range(1, len(starts)):
        places += [(period, *pair) for pair in combinations(range(count), 2)]
        places += [(period, client, client) for client in range(count)]
    found = np.ones((len(starts), count, count, len(KINDS)))
    for period, one, other in places:
        before = period - 1 if one == other else period
        tests = differences(held[period][one], held[before][other])
        found[period, one, other] = tests
        found[period, other, one] = tests
    corrected: FloatArray = false_discovery_control(found.ravel())
    return corrected.reshape(found.shape)


def differences(one: View, other: View) -> list[float]:
    """Return the p-value of each kind for the training samples of two clients."""
    from scipy.stats import chi2_contingency, ttest_1samp

    labels = np.unique(np.concatenate([one.labels, other.labels]))
    views = (one, other)
    counts = np.array([[(of.labels == y).sum() for y in labels] for of in views])
    found = [1.0, 1.0, 1.0]
    if counts.any(axis=1).all():
        found[0] = float(chi2_contingency(counts).pvalue)
    common = counts.min(axis=0)
    if common.sum() < LEAST_SAMPLES:
        return found
    rows = [match(of.labels, common, labels) for of in views]
    size = len(rows[0])
    inputs = (
        of.train()[0].flatten(1).numpy()[at] for of, at in zip(views, rows, strict=True)
    )
    x = np.concatenate(list(inputs))
    y = np.searchsorted(labels, np.tile(one.labels[rows[0]], 2))
    side = np.repeat([0, 1], size)
    half = np.tile(np.arange(size) % 2, 2)
    told = predict(x, side, 0 * side, half) - 0.5
    better = predict(x, y, side, half) - predict(x, y, 0 * side, half)
    for kind, gain in enumerate([told, better], start=1):
        # Two that contradict each other: forests may be equally sure of all samples.
        spread = np.append(gain, [-0.1, 0.1])
        test = ttest_1samp(spread, 0, alternative="greater")
        found[kind] = float(test.pvalue)
    return found


def match(y: IntArray, counts: IntArray, labels: IntArray) -> IntArray:
    """Return rows with so many samples of each label, or evenly fewer of them all."""
    step = max(1, -(-int(counts.sum()) // MOST_SAMPLES))
    found = []
    for label, count in zip(labels, counts, strict=True):
        rows = np.flatnonzero(y == label)
        # Evenly over the samples, which may be in the order of time.
        found.append(rows[np.linspace(0, len(rows) - 1, count).astype(int)])
    return np.concatenate(found)[::step]


def predict(x: FloatArray, y: IntArray, group: IntArray, half: IntArray) -> FloatArray:
    """Return the probability of each y by a forest of the other half of its group."""
    from sklearn.ensemble import ExtraTreesClassifier

    found = np.zeros((len(y), y.max() + 1))
    for own in (group == each for each in np.unique(group)):
        for part in (0, 1):
            known = own & (half == part)
            asked = own & (half != part)
            forest = ExtraTreesClassifier(TREES, random_state=0)
            forest.fit(x[known], y[known])
            found[np.ix_(asked, forest.classes_)] = forest.predict_proba(x[asked])
    return found[np.arange(len(y)), y]


def find_groups(tests: FloatArray) -> IntArray:
    """Return the group of each client, from 1 on: in one, few pairs differ.

    By average linkage, from the p-values of all pairs, shape (clients, clients): a pair
    that is found different by chance, or not found, does not change the groups.
    """
    from scipy.cluster.hierarchy import fcluster, linkage

    if len(tests) < 2:
        return np.ones(len(tests), np.int64)
    distances = 1 - tests[np.triu_indices(len(tests), 1)]
    found: IntArray = fcluster(linkage(distances, "average"), 0.5, "distance")
    return found


def show_diagnosis(stream: Stream, periods: Sequence[Period], console: Console) -> None:
    """Print in what clients differ, the groups of each kind, and what to take."""
    say = partial(console.print, highlight=False, soft_wrap=True)
    kinds = set()
    tests = diagnose(stream, [period.start for period in periods])
    for period, of in zip(periods, tests, strict=True):
        differ = of < LEVEL
        before = np.diagonal(differ).T
        others = differ.sum(axis=1) - before
        table = Table("client", "samples", *KINDS, "changed", box=None)
        table.title = (
            f"{period.rounds.capitalize()}: other clients that one differs from"
        )
        for client, (counts, changed) in enumerate(zip(others, before, strict=True)):
            words = ", ".join(KINDS[kind] for kind in np.flatnonzero(changed))
            table.add_row(*map(str, (client, period.sizes[client], *counts, words)))
        say(table)
        for kind, name in enumerate(KINDS):
            members = find_groups(of[:, :, kind])
            say(f"groups by {name}: {members.max()} ({' '.join(map(str, members))})")
            # Some of many are found by chance.
            if members.max() > 1 or before[:, kind].mean() > 2 * LEVEL:
                kinds.add(name)
    for name in sorted(kinds) or [""]:
        say(f"{ADVICE[name]} (docs/choosing.md)")

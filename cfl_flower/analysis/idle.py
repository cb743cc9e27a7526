"""Methods of clusters whose clusters never did anything, which no accuracy tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cfl_flower.analysis.baselines import REFERENCES
from cfl_flower.analysis.saved import SavedRun

WITHOUT_CLUSTERS = (
    *REFERENCES,
    *("adapfedavg", "apfl", "ditto", "fedasync", "fedbabu", "fedbuff", "fedccfa"),
    *("fedem", "fedfm", "fedpac", "fedprox", "fedrc", "feddaa", "fedrep", "flash"),
    *("local_async", "local_rounds", "pfedme", "scaffold", "static"),
)
"""Methods that cluster no clients, or that say that their clusters never change."""


def say_idle(run: SavedRun) -> str:
    """Say what clusters did not do in a run; nothing if they did something."""
    # Clusters with clients.
    counts = {sum(map(bool, row["cluster_sizes"] or ())) for row in run.rounds}
    if counts == {1}:
        return "all clients were in one cluster in every round"
    if counts == {len(run.clients)}:
        return "each client was a cluster of its own in every round"
    return ""


def find_idle(runs: Mapping[str, Sequence[SavedRun]]) -> list[str]:
    """Say of each method of clusters what these did not do, a line each."""
    found = []
    for label, seeds in runs.items():
        own = [run for run in seeds if run.strategy not in WITHOUT_CLUSTERS]
        for words, count in Counter(map(say_idle, own)).items():
            often = f" (with {count} of {len(own)} seeds)" if count < len(own) else ""
            found += [f"{label}: {words}{often}"] if words else []
    return found

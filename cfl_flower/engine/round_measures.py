"""What a round's line says of its clusters and models."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from cfl_flower.engine.context import RoundContext
from cfl_flower.runs.measures import adjusted_rand_index, class_scores
from cfl_flower.state import ClusteredState
from cfl_flower.types import Result


def note_training(context: RoundContext, results: Sequence[Result]) -> None:
    """Note how far participants' models are from their clusters' new ones.

    The mean Euclidean distance (FlexCFL, eq. 3).
    """
    comparable = context.method.describe().comparable
    if comparable and all(result.arrays for result in results):
        state = context.state
        clusters = state.clusters[state.rows(result.client for result in results)]
        pairs = zip(results, clusters.tolist(), strict=True)
        gaps = [float(np.linalg.norm(r.arrays[0] - state.models[k])) for r, k in pairs]
        context.record.measures["discrepancy"] = fmean(gaps) if gaps else None


def note_empty(state: ClusteredState, results: Sequence[Result]) -> None:
    """Note who has no samples in the next round, of those who answer."""
    reported = {result.client: bool(result.metrics.get("empty")) for result in results}
    before = set(state.empty)
    state.empty = [c for c in state.clients if reported.get(c, c in before)]


def note_clusters(context: RoundContext) -> None:
    """Note the clusters, and how they agree with the truth where it is known."""
    record = context.record
    state = context.state
    described = context.method.describe()
    record.heterogeneity = described.heterogeneity
    timeline = context.timeline
    members = state.clusters[context.there(state.clients)]
    sizes = np.bincount(members, minlength=len(state.models))
    record.cluster_sizes = sizes.tolist()
    record.num_clusters = int(np.count_nonzero(sizes))
    if timeline is None:
        return
    meanings = timeline.world(record.round).meanings
    clients, clusters = described.class_clusters or (state.clients, None)
    numbers = np.array(clients, np.int64)
    there = context.there(clients)
    if clusters is None:
        truth = timeline.concepts(record.round)[numbers[there]]
        # Of one concept, the index of one cluster is 1, and of any others 0.
        if len(np.unique(truth)) > 1:
            record.ari = adjusted_rand_index(truth, members)
        shape = (len(clients), meanings.shape[1])
        clusters = np.broadcast_to(state.clusters[:, None], shape)
    present = meanings[numbers[there]]
    counts = [len(np.unique(column)) for column in present.T]
    # Clusters of whole clients are compared where any class has several meanings.
    if described.class_clusters or max(counts) > 1:
        record.measures["class_meanings"] = counts
        record.measures["class_ari"] = class_scores(present, clusters[there])

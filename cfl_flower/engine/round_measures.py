"""What a round's line says of its tests, clusters and models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfl_flower.client.attacks import malicious_clients
from cfl_flower.engine.context import RoundContext
from cfl_flower.runs.measures import (
    adjusted_rand_index,
    note_class_agreement,
    note_discrepancies,
    note_measures,
    note_tests,
)
from cfl_flower.runs.record import ClientRow
from cfl_flower.types import Result


class RoundMeasures:
    """Fills in the record of the round that is under way."""

    def __init__(self, context: RoundContext) -> None:
        self._context = context
        config = context.config
        self._malicious = malicious_clients(config.faults, config.clients, config.seed)

    def note_training(self, results: Sequence[Result]) -> None:
        """Note how far participants' models are from their clusters' new ones."""
        context = self._context
        comparable = context.method.describe().comparable
        if comparable and all(result.arrays for result in results):
            state = context.state
            rows = state.rows(result.client for result in results)
            clusters = state.clusters[rows]
            note_discrepancies(context.record, results, clusters, state.models)

    def note_tests(self, results: Sequence[Result]) -> list[ClientRow]:
        """Note the tests; return a row for each."""
        context = self._context
        tested = [result for result in results if result.num_examples]
        places = context.state.rows(result.client for result in tested)
        clusters = context.state.clusters[places]
        rows = note_tests(context.record, tested, clusters, self._malicious)
        config = context.config
        classes = config.dataset.classes
        return note_measures(context.record, tested, rows, config.metrics, classes)

    def note_empty(self, results: Sequence[Result]) -> None:
        """Note who has no samples in the next round, of those who answer."""
        state = self._context.state
        reported = {
            result.client: bool(result.metrics.get("empty")) for result in results
        }
        before = set(state.empty)
        state.empty = [c for c in state.clients if reported.get(c, c in before)]

    def note_clusters(self) -> None:
        """Note the clusters, and how they agree with the truth where it is known."""
        context = self._context
        record = context.record
        state = context.state
        described = context.method.describe()
        record.cluster_sizes = state.sizes.tolist()
        record.num_clusters = int(np.count_nonzero(state.sizes))
        record.heterogeneity = described.heterogeneity
        timeline = context.timeline
        if timeline is None:
            return
        meanings = timeline.world(record.round).meanings
        clients, clusters = described.class_clusters or (state.clients, None)
        if clusters is None:
            if timeline.has_concepts:
                known = np.array(state.clients, np.int64)
                truth = timeline.concepts(record.round)[known]
                record.ari = adjusted_rand_index(truth, state.clusters)
            shape = (len(clients), meanings.shape[1])
            clusters = np.broadcast_to(state.clusters[:, None], shape)
        # Clusters of whole clients are compared where any class has several meanings.
        if described.class_clusters or meanings.any():
            numbers = np.array(clients, np.int64)
            note_class_agreement(record, meanings, numbers, clusters)

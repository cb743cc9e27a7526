"""FedDAG's client: describes its samples by principal vectors, counts and an update.

Computes: a singular value decomposition of the samples of each label and some local
trainings by itself, once; local SGD.
Sends: once, p vectors of the length z of a sample for each label (p L z floats), how
many samples of each label it has (L floats), and k of the d entries of its update; the
trained model (d floats). Keeps: nothing.
"""

from __future__ import annotations

import numpy as np

from cfl_flower.clustering.similarity import chosen_entries
from cfl_flower.clustering.subspaces import class_angles, of_labels
from cfl_flower.types import Config, FloatArray, Reply, Vector
from clients.pacfl import SUBSPACE, PACFLClient


class FedDAGClient(PACFLClient):
    """Reports its samples' subspaces and counts, and where they lead a model."""

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer with principal vectors, counts and an update, if requested."""
        arrays, count, metrics = super().answer(parameters, config)
        if SUBSPACE not in config:
            return arrays, count, metrics
        told = np.bincount(self.labels(self.context.upcoming), minlength=self.classes)
        counts = told.astype(np.float32)
        return [*arrays, counts, self.update(self.context.upcoming)], count, metrics

    def update(self, server_round: int) -> Vector:
        """Return entries of the last of some updates that begin at the initial model.

        Algorithm 1, lines 6 to 9: without federation.
        """
        now = self.context.initial()
        before = now
        for number in range(self.settings.warmup):
            before = now
            purpose = f"warmup/{number}"
            now, _ = self.train_from(before, None, server_round, purpose)
        entries = chosen_entries(len(now), self.settings.share, self.context.seed)
        return (now - before)[entries]

    def angles(self, subspaces: FloatArray) -> FloatArray:
        """Return the mean angles over labels, all of which count alike, (n, n)."""
        parts = of_labels(subspaces, self.settings.vectors)
        return class_angles(parts, parts.any(axis=(2, 3)).astype(float), 0.0)

"""PACFL's client: describes its samples by their principal vectors.

Computes: a singular value decomposition of the samples of each label, once; local SGD.
Sends: p vectors for each label, of the length z of a sample (p L z floats), once; the
trained model (d floats). Keeps: nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cfl_flower.clustering.subspaces import subspace_angles
from cfl_flower.types import Config, FloatArray, Reply, Vector
from clients.base import ClusteredClient, Clusters, Found
from clients.tested import Samples

SUBSPACE = "subspace"
"""Entry of a config that asks for principal vectors."""


class PACFLClient(ClusteredClient):
    """Reports the subspaces of its samples when it joins."""

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer with the principal vectors of the next round's samples."""
        if SUBSPACE not in config:
            return super().answer(parameters, config)
        samples = self.samples(self.context.upcoming)
        found = self.subspace(samples)
        honest = found.astype(np.float32).ravel()
        told = self.falsified(honest)
        return [told], len(samples[1]), {}

    def subspace(self, samples: Samples) -> FloatArray:
        """Return the principal vectors of samples, or of each label's, (v, z)."""
        x, y = samples
        count = self.settings.vectors
        by_label = self.settings.by_label
        parts = [x[y == k] for k in range(self.classes)] if by_label else [x]
        return np.concatenate([principal_vectors(part, count) for part in parts])

    def find_cluster(self, among: Clusters, unlabelled: bool) -> Found:
        """Return the cluster at the smallest angle to what its clients have in common.

        The server merges pairs of clients instead, whose vectors it has.
        """
        own = self.subspace(self.samples(self.context.round))
        others = among.places["subspaces"][[*among.models]]
        gaps = self.angles(np.stack([own, *others]))[0, 1:]
        return Found.nearest(among.models, gaps, "angle")

    def angles(self, subspaces: FloatArray) -> FloatArray:
        """Return the angles of n subspaces, (n, v, z), in degrees, (n, n)."""
        return subspace_angles(subspaces)


def principal_vectors(samples: Tensor, count: int) -> FloatArray:
    """Return the leading principal vectors of samples, (n, ...), of shape (count, z).

    Samples are not centred. Vectors beyond min(n, z) are zero.
    """
    matrix = samples.flatten(1).float()
    found = np.zeros((count, matrix.shape[1]))
    if len(matrix):
        # Samples are rows here, and columns in the paper: its U is this V.
        rows = torch.linalg.svd(matrix, full_matrices=False).Vh[:count]
        found[: len(rows)] = rows.cpu().numpy()
    return found

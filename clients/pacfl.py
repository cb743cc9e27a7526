"""PACFL's client: describes its samples by their principal vectors.

Computes: a singular value decomposition of the samples of each label, once; local SGD.
Sends: p vectors for each label, of the length z of a sample (p L z floats), once; the
trained model (d floats). Keeps: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cfl_flower.client.attacks import spoil_report
from cfl_flower.client.requests import Request
from cfl_flower.types import FloatArray, Vector
from clients.base import ClusteredClient
from clients.tested import Config, Reply


@dataclass(frozen=True)
class SubspaceRequest(Request):
    """A request for principal vectors."""

    vectors: int
    """p, the number of vectors."""
    by_label: bool
    """Whether each label's samples have vectors of their own."""


class PACFLClient(ClusteredClient):
    """Reports the subspaces of its samples when it joins."""

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer with the principal vectors of the next round's samples."""
        request = SubspaceRequest.from_config(config)
        if request is None:
            return super().answer(parameters, config)
        context = self.context
        x, y = self.samples(context.upcoming)
        classes = context.stream.classes
        parts = [x[y == k] for k in range(classes)] if request.by_label else [x]
        vectors = [principal_vectors(part, request.vectors) for part in parts]
        honest = np.concatenate(vectors).astype(np.float32).ravel()
        told = spoil_report(context.attack, honest, context.seed, context.client)
        return [told], len(y), {}


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

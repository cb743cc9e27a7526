"""FedSoft's client: finds which models its samples fit, and trains near their mixture.

Computes: the loss of each of the K models on each sample; local training from their
mixture. Sends: the trained model and its shares (d + K floats). Keeps: nothing.
"""

from __future__ import annotations

import numpy as np
import torch

from cfl_flower.learning.aggregation import mixture
from cfl_flower.learning.testing import sample_losses
from cfl_flower.types import FloatArray, Vector
from clients.families.asynchronous import AsynchronousClient


def count_shares(losses: FloatArray) -> Vector:
    """Return mu_k, the share of samples whose smallest loss, of (K, n), is at model k.

    Examples
    --------
    >>> count_shares(np.array([[0.1, 0.5, 0.3, 2.0], [0.2, 0.4, 0.9, 3.0]])).tolist()
    [0.75, 0.25]
    """
    # mu_k: samples whose smallest loss is at model k.
    counts = np.bincount(losses.argmin(axis=0), minlength=len(losses))
    return (counts / losses.shape[1]).astype(np.float32)


class FedSoftClient(AsynchronousClient):
    """A client that estimates its own mixture, and uploads it with the model."""

    def begin(self, parameters: list[Vector]) -> tuple[Vector, list[Vector]]:
        """Return the mixture of the models, and the shares to upload."""
        x, y = self.samples(self.context.round)
        network = self.context.model
        losses = [sample_losses(network.load(model), x, y) for model in parameters]
        shares = count_shares(torch.stack(losses).cpu().numpy())
        # sum_k mu_k w_k, near which it trains.
        return mixture(parameters, shares), [shares]

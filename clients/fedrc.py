"""FedRC's client: FedEM's, whose E-step divides by the label shares of components.

Computes: as FedEM's. Sends: the M components (M d floats); the share of its samples
that has each label and belongs to each component (M L floats). Keeps: its mixture.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cfl_flower.types import Vector
from clients.fedem import FedEMClient
from clients.tested import Samples

SMALLEST = 1e-6
"""Least label share by which a likelihood is divided."""


class FedRCClient(FedEMClient):
    """The robust objective, on the device."""

    def components(self, parameters: Sequence[Vector]) -> Sequence[Vector]:
        """Return all but the last, which is C."""
        return parameters[:-1]

    def component_losses(
        self, parameters: Sequence[Vector], samples: Samples
    ) -> Tensor:
        """Return -log of exp(-l_m) / C_{y;m} for each component and sample, (M, n)."""
        losses = super().component_losses(parameters, samples)
        shares = torch.from_numpy(parameters[len(losses)]).to(losses)
        shares = shares.reshape(len(losses), -1)
        labels = samples[1].long()
        return losses + shares.clamp(min=SMALLEST).log()[:, labels]

    def summaries(self, shares: Tensor, labels: Tensor) -> list[Vector]:
        """Return the share of samples of each component and label, (M L,)."""
        joint = torch.zeros(len(shares), self.classes, dtype=shares.dtype)
        joint.index_add_(1, labels.long().cpu(), shares.cpu())
        return [(joint / len(labels)).float().numpy().ravel()]

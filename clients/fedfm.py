"""FedFM's client: trains with a contrastive term towards the global anchors.

Computes: local SGD on both losses; the mean representation of each of its classes.
Sends: the model (d floats), these (L * D floats) and its label counts. Keeps: nothing.
"""

from __future__ import annotations

import numpy as np

from cfl_flower.learning.anchors import AlignedLoss, class_means, contrast, read_anchors
from cfl_flower.learning.decoupling import represent
from cfl_flower.types import Config, Reply, Vector
from clients.base import ClusteredClient


class FedFMClient(ClusteredClient):
    """The client of Algorithm 1."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train parameters[0] towards the anchors, parameters[1]."""
        start = parameters[0]
        x, y = self.samples(self.context.round)
        anchors = read_anchors(parameters[1], config)
        loss = None
        # The paper counts rounds from 0.
        if self.context.round - 1 >= self.settings.start and anchors.present.any():
            alignment = contrast(anchors, self.settings.temperature, x.device)
            weight = self.settings.alignment_weight
            # The cross-entropy + lambda times the contrastive loss (FedCCFA, eq. 8).
            loss = AlignedLoss(alignment, weight, self.local.label_smoothing)
        trained, _ = self.train_from(start, samples=(x, y), loss=loss)
        # The loaded model is the trained one.
        # The client's anchors: means of its classes (FedCCFA, eq. 6).
        means = class_means(represent(self.context.model, x), y, self.classes)
        counts = np.bincount(y.cpu().numpy(), minlength=self.classes).astype(np.float32)
        return [trained, means.points.ravel()], len(y), {"classes": counts.tobytes()}

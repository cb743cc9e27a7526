"""FedPAC's client: as FedRep's, aligned with global anchors.

Computes: statistics of its representations; its classifier, then the extractor; its
anchors. Sends: all of these. Keeps: the classifier that the server mixed for it.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from cfl_flower.learning.anchors import AlignedLoss, class_means, distance, read_anchors
from cfl_flower.learning.decoupling import represent
from cfl_flower.types import Config, IntArray, Metrics, Reply, Vector
from clients.families.decoupled import DecoupledClient


def statistics(z: Tensor, y: Tensor, counts: IntArray) -> tuple[float, Vector]:
    """Return the variance v, and the means h of shape (L * D,).

    v = (sum_c p_c E_c|z|^2 - sum_c p_c^2 |mu_c|^2) / n and h_c = p_c mu_c, of
    representations z, (n, D), with labels y, (n,), and label counts, (L,).
    """
    total = max(1, int(counts.sum()))
    means = class_means(z, y, len(counts)).points
    weighted = means * (counts / total)[:, None]
    # sum_c p_c E_c|z|^2 is the mean over all samples.
    squares = float(z.double().square().sum()) / total
    # Eq. 9.
    variance = (squares - float((weighted.astype(float) ** 2).sum())) / total
    return max(variance, 0.0), weighted.astype(np.float32).ravel()


class FedPACClient(DecoupledClient):
    """The client of Algorithm 1."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train parameters[0] towards the anchors, parameters[1]."""
        received = parameters[0]
        x, y = self.samples(self.context.round)
        counts = np.bincount(y.cpu().numpy(), minlength=self.classes)
        own = self.classifier(self.context.round)
        z = represent(self.load(self.split.join(received, own)), x)
        variance, weighted = statistics(z, y, counts)
        # The classifier, then the extractor near the anchors.
        own = self.fit_classifier(own, z, y)
        anchors = read_anchors(parameters[1], config)
        loss = None
        if anchors.present.any():
            alignment = distance(anchors, x.device)
            weight = self.settings.alignment_weight
            loss = AlignedLoss(alignment, weight, self.local.label_smoothing)
        extractor = self.fit_extractor(received, own, (x, y), loss)
        self.context.state.save(self.context.round, {"classifier": own})
        model = self.load(self.split.join(extractor, own))
        points = class_means(represent(model, x), y, len(counts)).points.ravel()
        known: Metrics = {
            "variance": variance,
            "classes": counts.astype(np.float32).tobytes(),
        }
        return [extractor, own, points, weighted], len(y), known

"""FedCCFA's client: Algorithm 1, the part of a device.

Computes: a balanced classifier from phi(0); its own classifier; the extractor, aligned
with its anchors; each class's mean representation. Sends: these, and which classes it
has samples of. Keeps: its classifier and its anchors, as the server last returned them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from cfl_flower.learning.anchors import (
    AlignedLoss,
    Anchors,
    class_means,
    contrast,
    read_anchors,
)
from cfl_flower.learning.decoupling import balanced_batch, label_entropy, represent
from cfl_flower.learning.gradients import Loss
from cfl_flower.types import Config, IntArray, Reply, Vector
from clients.families.decoupled import DecoupledClient


class FedCCFAClient(DecoupledClient):
    """Trains a balanced and an own classifier, then the aligned extractor."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train on the data of this round: lines 5 to 12."""
        settings = self.settings
        server_round = self.context.round
        received = parameters[0]
        x, y = self.samples(server_round)
        counts = np.bincount(y.cpu().numpy(), minlength=self.classes)
        whole = self.split.join(received, self.first_classifier())
        z = represent(self.load(whole), x)
        kept = self.context.state.load(server_round)
        own = kept.get("classifier")
        balanced = self.first_classifier()
        first = own is None and settings.clustering == "oracle"
        if first or settings.clustering == "balanced":
            # Line 7.
            balanced = self.fit_balanced(z, y)
        # Line 8: phi_k of the last participation; at first the balanced one.
        own = self.fit_classifier(balanced if own is None else own, z, y)
        loss = self.alignment(self.anchors(parameters, config, kept), counts)
        # Line 9.
        extractor = self.fit_extractor(received, own, (x, y), loss)
        arrays = [extractor, own]
        remembered: dict[str, np.ndarray] = {"classifier": own}
        if settings.alignment != "none":
            model = self.load(self.split.join(extractor, own))
            z = represent(model, x)
            # Lines 10 to 12, eq. 6.
            means = class_means(z, y, self.classes)
            arrays.append(means.points.ravel())
            remembered |= {"anchors": means.points, "present": means.present}
        if settings.clustering == "balanced":
            arrays.append(balanced)
        self.context.state.save(server_round, remembered)
        weights = counts if settings.row_weighting == "samples" else counts > 0
        return arrays, len(y), {"classes": weights.astype(np.float32).tobytes()}

    def first_classifier(self) -> Vector:
        """Return phi(0), the classifier of the common initial model."""
        return self.split.divide(self.context.initial())[1]

    def fit_balanced(self, representations: Tensor, y: Tensor) -> Vector:
        """Return the balanced classifier: eq. 3, s steps from phi(0)."""
        labels = y.cpu().numpy()
        batch = balanced_batch(
            labels, self.settings.balanced_samples, self.rng("balanced-samples")
        )
        local = replace(
            self.classifier_training(),
            steps=self.settings.balanced_steps,
            batch_size=max(1, len(batch)),
        )
        place = torch.from_numpy(batch).to(y.device)
        first = self.first_classifier()
        z = representations[place]
        # Eq. 3.
        return self.fit_classifier(first, z, y[place], "balanced-batches", local)

    def anchors(
        self, parameters: list[Vector], config: Config, kept: dict[str, np.ndarray]
    ) -> Anchors | None:
        """Return the anchors to align with: the client's own, or all participants'.

        The own ones are in its state, ``kept``, all participants' in ``parameters[1]``.
        None for a client whose state was lost: the anchors that the server returned do
        not say for which classes they are.
        """
        if len(parameters) > 1:
            return read_anchors(parameters[1], config)
        if not {"anchors", "present"} <= kept.keys():
            return None
        return Anchors(kept["anchors"], kept["present"])

    def alignment(self, anchors: Anchors | None, counts: IntArray) -> Loss | None:
        """Return the loss of the extractor, eq. 9; None for the cross-entropy alone.

        ``counts`` has this client's labels, (L,).
        """
        weight = self.settings.alignment_weight
        if weight is None:
            # Eq. 9: H(P(Y)) / gamma.
            weight = label_entropy(counts) / self.settings.gamma
        # The paper counts rounds from 0.
        waiting = self.context.round - 1 < self.settings.start
        if not weight or waiting or anchors is None or not anchors.present.any():
            return None
        device = self.context.model.vector.device
        alignment = contrast(anchors, self.settings.temperature, device)
        # Eq. 9, with eq. 8 as the alignment.
        return AlignedLoss(alignment, weight, self.local.label_smoothing)

    def adopt(self, arrays: list[Vector]) -> None:
        """Keep the means of this client's clusters instead of its own."""
        server_round = self.context.round
        kept = {**self.context.state.at(server_round), "classifier": arrays[0]}
        if len(arrays) > 1:
            shape = self.split.classes, self.split.width
            kept["anchors"] = arrays[1].reshape(shape)
        self.context.state.save(server_round, kept)

"""Fielding's client: represents its data by labels, embedding or gradient.

Computes: its representation; with an embedding or a gradient, by a shared model that
came with the hello. Sends: the representation, when it is asked for one and the server
does not hold it: L floats for labels, D for the mean embedding, p (or a sketch) for the
gradient, L + p for both. Keeps: the shared model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cfl_flower.client.attacks import spoil_report
from cfl_flower.clustering.representations import distances, unit
from cfl_flower.clustering.similarity import sketch
from cfl_flower.learning.decoupling import represent
from cfl_flower.learning.training import full_gradient
from cfl_flower.types import Scalar, Vector
from clients.base import ClusteredClient


class FieldingClient(ClusteredClient):
    """Represents its data as the strategy's settings say."""

    def answer(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Scalar]]:
        """Keep the shared model that comes with the hello, and answer it."""
        if parameters:
            name = f"shared-{config['shared_model']}"
            self.context.state.keep(name, {"model": parameters[0]})
        return super().answer(parameters, config)

    def represent(self, config: dict[str, Any], round: int) -> Vector:
        """Return the representation to report; a malicious client's is spoilt."""
        kind, context = self.context.settings.representation, self.context
        if kind == "label_histogram":
            return super().represent(config, round)
        shared = context.state.kept(f"shared-{config['shared_model']}").get("model")
        if shared is None:
            raise RuntimeError("the shared model of the hello is lost")
        made = self.embed(shared, round) if kind == "embedding" else None
        if made is None:
            made = self.gradient(shared, round)
        honest = spoil_report(context.attack, made, context.seed, context.client)
        if kind == "combined":
            return np.concatenate([super().represent(config, round), honest])
        return honest

    def embed(self, shared: Vector, round: int) -> Vector:
        """Return the mean of the inputs' embeddings, shape (D,); 0 without samples."""
        model = self.context.model.load(shared)
        x, y = self.samples(round)
        if len(y) == 0:
            return np.zeros(model.split.width, np.float32)
        embedding: Vector = represent(model, x).mean(0).cpu().numpy()
        return (
            unit(embedding) if self.context.settings.distance == "cosine" else embedding
        )

    def gradient(self, shared: Vector, round: int) -> Vector:
        """Return the loss's gradient at the shared model, or its sketch.

        At length 1 for the cosine, and where it stands beside a histogram.
        """
        settings, model = self.context.settings, self.context.model.load(shared)
        gradient: Vector = full_gradient(model, *self.samples(round)).cpu().numpy()
        if settings.sketch:
            gradient = sketch(gradient, settings.sketch, self.context.seed)
        directions = (
            settings.distance == "cosine" or settings.representation == "combined"
        )
        return unit(gradient) if directions else gradient

    def changed(self, last: Vector, now: Vector, tolerance: float) -> bool:
        """Return whether a representation changed by more than is tolerated.

        A combined one has a test for each part, by the settings: either is enough.
        """
        settings, classes = self.context.settings, self.context.stream.classes
        if settings.representation != "combined":
            gap = distances(last[None], now[None], settings.distance)
            return bool(gap[0, 0] > settings.tolerance)
        labels = float(abs(now[:classes] - last[:classes]).sum())
        turned = distances(last[None, classes:], now[None, classes:], "cosine")
        tolerated = settings.gradient_tolerance
        return bool(labels > settings.tolerance or turned[0, 0] > tolerated)

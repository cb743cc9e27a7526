"""Fielding's client: represents its data by labels, an embedding or a gradient.

Computes: its representation (`strategies.fielding.representations`); an embedding or a
gradient by a shared model that came with the hello. Sends: the representation, when it
is asked for one and the server does not hold it: L floats for labels, D for the mean
embedding, p (or a sketch) for the gradient, L + p for both. Keeps: the shared model.
"""

from __future__ import annotations

import numpy as np

from cfl_flower.clustering.representations import distances
from cfl_flower.types import Config, Reply, Vector
from clients.base import ClusteredClient, Clusters, Found


class FieldingClient(ClusteredClient):
    """Represents its data as `strategy.representation` does."""

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Keep the shared model that comes with the hello, and answer it."""
        if parameters:
            name = f"shared-{config['shared_model']}"
            self.context.state.keep(name, {"model": parameters[0]})
        return super().answer(parameters, config)

    def represent(self, config: Config, server_round: int) -> Vector:
        """Return the representation to report; a malicious client falsifies it."""
        context = self.context
        representation = self.settings.representation
        if not representation.by_model:
            return super().represent(config, server_round)
        shared = context.state.kept(f"shared-{config['shared_model']}").get("model")
        if shared is None:
            raise RuntimeError("the shared model of the hello is lost")
        return self.represent_by(shared, server_round)

    def represent_by(self, shared: Vector, server_round: int) -> Vector:
        """Return the representation of a round's data by a shared model."""
        settings = self.settings
        representation = settings.representation
        x, y = self.samples(server_round)
        model = self.context.model.load(shared)
        made = representation.make(model, x, y, settings.distance, self.context.seed)
        honest = self.falsified(made)
        if representation.has_labels:
            return np.concatenate([super().represent({}, server_round), honest])
        return honest

    def find_cluster(self, among: Clusters, unlabelled: bool) -> Found:
        """Return the cluster with the nearest centre: Algorithm 2, lines 1 and 2."""
        now = self.context.round
        if "shared" in among.places:
            own = self.represent_by(among.places["shared"], now)
        else:
            own = super().represent({}, now)
        centres = among.places["centres"][[*among.models]]
        distance = self.settings.distance
        gaps = distances(own[None], centres, distance)[0]
        return Found.nearest(among.models, gaps, "distance")

    def changed(self, last: Vector, now: Vector, tolerance: float) -> bool:
        """Return whether a representation changed by more than the settings' tolerance.

        ``tolerance``, the request's, is the largest of all parts, and not used here.
        """
        settings = self.settings
        gap = settings.representation.gap(last, now, settings.distance, self.classes)
        return bool(gap > settings.tolerance)

"""StoCFL's client: reports psi, and trains the global and its cluster's model.

Computes: psi, the direction of its loss at the anchor w_0, once; local SGD on omega,
and on theta near omega. Sends: psi (d floats, or its sketch); both models (2d floats).
Keeps: with `refresh=on_drift` a digest of the data from which psi was computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.clustering.similarity import nearest_direction, normalise, sketch
from cfl_flower.learning.gradients import full_gradient
from cfl_flower.learning.testing import predictions
from cfl_flower.learning.training import train
from cfl_flower.settings import require
from cfl_flower.types import Config, FloatArray, Metrics, Reply, Vector
from clients.base import Clusters, Found
from clients.ditto import BilevelClient

PSI = "represent"
"""Entry of a config that asks for psi at the received model."""
TRAIN_OMEGA = "train_global"
"""Entry of a config that asks to train the received global model."""
REPORTED = "reported"
"""Entry of a config that asks for psi if the data changed: the round of the last report
that the server received."""


class StoCFLClient(BilevelClient):
    """Algorithm 1, ClientProcedure and GetDatasetRepresentation."""

    directions = (PSI,)
    tests_received = True
    finds_unlabelled = True

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer with psi at the anchor parameters[0], or the trained parameters[0]."""
        upcoming = self.context.upcoming
        count = len(self.data(upcoming).labels)
        if PSI in config:
            self.remember(upcoming)
            return [self.direction(parameters[0], upcoming)], count, {}
        if TRAIN_OMEGA in config:
            return [self.train_global(parameters[0], upcoming)], count, {}
        return super().answer(parameters, config)

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train theta = parameters[1], and omega = parameters[0]: lines 20 to 23."""
        omega, theta = parameters
        # Line 21, eq. 3.
        trained, count = self.train_near(theta, omega)
        if self.settings.omega == "sequential":
            return [trained], count, {}
        # Line 22.
        return [trained, self.train_global(omega)], count, {}

    def starting_model(self, parameters: list[Vector]) -> Vector:
        """Return theta, the cluster's model."""
        return parameters[1]

    def direction(self, anchor: Vector, server_round: int) -> Vector:
        """Return psi of a round's data, or zeros without any; see `direction_of`."""
        honest = self.direction_of(anchor, *self.samples(server_round), server_round)
        reported = self.falsified(honest)
        return normalise(reported)

    def direction_of(
        self, anchor: Vector, x: Tensor, y: Tensor, server_round: int
    ) -> Vector:
        """Return psi of samples: GetDatasetRepresentation, line 6.

        It has length 1, also as a sketch. The round seeds the batches of a difference.
        """
        model = self.context.model.load(anchor)
        if self.settings.representation == "gradient":
            vector = full_gradient(model, x, y).cpu().numpy()
        else:
            epochs = self.settings.representation_epochs
            local = replace(self.local, epochs=epochs, steps=None, mu=0.0)
            train(model, x, y, local, self.rng("representation", server_round))
            vector = (anchor - model.to_vector())[: len(model.weights)]
        # Running statistics have no gradient: zeros take their place.
        if statistics := len(anchor) - len(vector):
            vector = np.pad(vector, (0, statistics))
        if self.settings.sketch:
            vector = sketch(vector, self.settings.sketch, self.context.seed)
        return normalise(vector)

    def similarities(
        self,
        anchor: Vector,
        models: Sequence[Vector],
        sums: Sequence[FloatArray],
        x: Tensor,
        server_round: int,
    ) -> list[float]:
        """Return the cosine similarity of unlabelled samples to each of K clusters.

        The paper's psi needs labels. Here each cluster's model labels the samples, and
        the psi with these labels is compared with the sum of the members', shape (w,).
        Clusters that label the same samples differently cannot be distinguished.
        """
        found = []
        for model, total in zip(models, sums, strict=True):
            labels = predictions(self.context.model.load(model), x)
            direction = self.direction_of(anchor, x, labels, server_round)
            found.append(nearest_direction(direction, [total])[1])
        return found

    def find_cluster(self, among: Clusters, unlabelled: bool) -> Found:
        """Return the cluster with the nearest direction (section 4.4).

        Below tau the server would give the client one of its own.
        """
        directions = among.places["directions"]
        # Cluster 0 has the clients that the server has not met.
        known = [k for k in among.models if not np.isnan(directions[k]).any()]
        require(bool(known), "SOURCE", "none", "a run in which clients took part")
        anchor = self.context.initial()
        now = self.context.round
        sums = [directions[k] for k in known]
        if unlabelled:
            x, _ = self.data(now).train()
            own = [among.models[k] for k in known]
            found = self.similarities(anchor, own, sums, x, now)
            cosine = max(found)
            place = found.index(cosine)
        else:
            place, cosine = nearest_direction(self.direction(anchor, now), sums)
        joins = cosine >= self.settings.threshold
        return Found(known[place], cosine, "cosine", joins)

    def report(
        self, config: Config, server_round: int, parameters: Sequence[Vector] = ()
    ) -> Metrics:
        """Report psi again if the data are not those of the last received report.

        A report that was lost is repeated. The anchor follows from the seed.
        """
        samples = len(self.data(server_round).labels)
        if REPORTED not in config or samples == 0:
            return {}
        taken = config[REPORTED]
        before = self.context.state.part("report").at(taken).get("data")
        if before is not None and np.array_equal(
            before, self.fingerprint(server_round)
        ):
            return {}
        self.remember(server_round, taken)
        direction = self.direction(self.context.initial(), server_round)
        return DriftReport(direction, samples).to_metrics()

    def remember(self, server_round: int, taken: int | None = None) -> None:
        """Save the digest of a round's data, beside that of the last report."""
        if self.settings.refresh == "on_drift":
            state = self.context.state.part("report")
            data = {"data": self.fingerprint(server_round)}
            state.save(server_round - 1, data, taken)

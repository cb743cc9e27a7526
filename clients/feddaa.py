"""FedDAA's client: FedRC's, which goes on with earlier data that still hold.

Computes: as FedRC's; at a time step the mean outputs of the first component for each of
its labels, on its present and its earlier data. Sends: as FedRC's; the mean outputs on
its present data (L^2 floats), and whether its data have changed. Keeps: its mixture,
these outputs, a digest of its data and the rounds since which it has had them. A real
device has its present data only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from cfl_flower.clustering.algorithms import nearest_centre
from cfl_flower.learning.anchors import class_means
from cfl_flower.learning.testing import logits
from cfl_flower.types import CHANGED, Config, Metrics, Reply, Vector
from clients.fedrc import FedRCClient
from clients.tested import Samples

PROTOTYPES = "prototypes"
"""Entry of a config that asks for the mean outputs for each label."""
STEP = "step"
"""Entry of a config: the round in which the time step began."""
KEPT = "kept"
"""Entry of metrics: whether the client trained on its earlier data as well."""


class FedDAAClient(FedRCClient):
    """Detection of real drift, and training on the data that it leaves."""

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer with the mean outputs, and forget the mixture of the last step."""
        if PROTOTYPES not in config:
            return super().answer(parameters, config)
        now = self.context.round
        self.context.state.save(now - 1, {})
        earlier = self.earlier
        told = self.prototypes(parameters[0], now)
        held = told if earlier is None else self.prototypes(parameters[0], earlier)
        self.context.state.part(PROTOTYPES).save(now, {"pair": np.stack([told, held])})
        told = self.falsified(told)
        return [told], len(self.data(now).labels), {}

    def prototypes(self, model: Vector, server_round: int) -> Vector:
        """Return a model's mean outputs for each label, (L^2,); 0 for one without."""
        x, y = self.samples(server_round)
        if len(y) == 0:
            return np.zeros(self.classes**2, np.float32)
        outputs = logits(self.load(model), x)
        means = class_means(outputs, y.long(), self.classes)
        return means.points.astype(np.float32).ravel()

    @property
    def earlier(self) -> int | None:
        """The round from which the client had the data before its present ones."""
        kept = self.context.state.part("data").load(self.context.round)
        earlier = int(kept["rounds"][1]) if kept else 0
        return earlier if earlier and self.context.folder is None else None

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Make FedRC's steps, and tell whether earlier data had a part in them."""
        arrays, count, _ = super().fit(parameters, config)
        own = len(self.data(self.context.round).labels)
        return arrays, count, {KEPT: count > own}

    def components(self, parameters: Sequence[Vector]) -> Sequence[Vector]:
        """Return all but the last two, which are C and the centres."""
        return parameters[:-2]

    def training_samples(self, parameters: list[Vector], config: Config) -> Samples:
        """Return the round's samples, with the earlier ones unless drift was real.

        It was if the mean outputs are nearest to another centre than they were.
        """
        x, y = super().training_samples(parameters, config)
        pair = self.context.state.part(PROTOTYPES).at(config[STEP]).get("pair")
        earlier = self.earlier
        if pair is None or earlier is None:
            return x, y
        centres = parameters[-1].reshape(-1, pair.shape[1])
        here, there = nearest_centre(pair, centres, "l2").tolist()
        if here != there:
            return x, y
        more_x, more_y = self.samples(earlier)
        return torch.cat([more_x, x]), torch.cat([more_y, y])

    def report(
        self, config: Config, server_round: int, parameters: Sequence[Vector] = ()
    ) -> Metrics:
        """Tell whether the data of a round are others than the last that it had."""
        now = self.context.round
        state = self.context.state.part("data")
        known = state.load(now)
        kept = known or {"data": self.fingerprint(now), "rounds": np.array([now, 0])}
        data = self.fingerprint(server_round)
        changed = not np.array_equal(data, kept["data"])
        if changed:
            rounds = np.array([server_round, kept["rounds"][0]])
            kept = {"data": data, "rounds": rounds}
        if kept is not known:
            state.save(now, kept)
        return {CHANGED: changed}

"""The client of `local`: trains and keeps its own model; no model is communicated.

Computes: local SGD from the initial model, whenever its data are new. Sends: nothing.
Keeps: its model (d floats), and a digest of the data that it was trained on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cfl_flower.types import Config, Reply, Vector
from clients.base import ClusteredClient

BUDGET = "budget"
"""Entry of a config: for how many rounds' epochs, or steps, to train on new data."""


class LocalClient(ClusteredClient):
    """A client that trains its own model on what it holds now."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train a model anew, unless the saved one is of these data."""
        context = self.context
        budget = config[BUDGET]
        data = self.fingerprint(context.round)
        before = context.state.load(context.round).get("data")
        if before is not None and np.array_equal(before, data):
            return [], len(self.data(context.round).labels), {}
        # Not this round's rate: the whole budget is spent at once.
        local = self.settings.local
        epochs = local.epochs * budget
        steps = local.steps and local.steps * budget
        local = replace(local, epochs=epochs, steps=steps)
        trained, count = self.train_from(context.initial(), local)
        context.state.save(context.round, {"model": trained, "data": data})
        return [], count, {}

    def starting_model(self, parameters: list[Vector]) -> Vector:
        """Return the initial model, from which each training starts."""
        return self.context.initial()

    def served(self, parameters: list[Vector]) -> Vector:
        """Return this client's own model as of this round."""
        return self.own_model(before=self.context.upcoming)


class LocalRoundsClient(LocalClient):
    """A client that goes on with its own model, at first the common initial one."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train this client's own model and keep it."""
        context = self.context
        trained, count = self.train_from(self.own_model(before=context.round))
        context.state.save(context.round, {"model": trained})
        return [], count, {}

    def starting_model(self, parameters: list[Vector]) -> Vector:
        """Return this client's own model as of before this round."""
        return self.own_model(before=self.context.round)

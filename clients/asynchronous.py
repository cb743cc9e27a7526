"""The client of methods without rounds: trains what it received, and uploads it.

A real device is in charge of when: it holds a task until its policy says that it is
time, as its data drifted, or enough arrived, or somebody touched the trigger, and the
server waits for nobody. Then it trains on what it has by then.

Computes: local training, proximal if mu > 0, from the received model on its present
data; tests of the model that it uploads and, on a real device, of the one it received.
Sends: the trained model (d floats), the time stamp of the model that it started from.
Keeps: on a real device, its number of samples of each label at its last upload.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from cfl_flower.deadline import without_limit
from cfl_flower.policy import touched
from cfl_flower.types import IntArray, Scalar, Vector
from clients.base import ClusteredClient


class AsynchronousClient(ClusteredClient):
    """A client that answers every model with a better one for its own data."""

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Scalar]]:
        """Train from what was received; say how good both models are here."""
        with without_limit():
            self.hold()
        metrics: dict[str, Scalar] = {"stamp": int(config["stamp"])}
        start, shares = self.begin(parameters)
        if config.get("tested"):
            metrics |= self.tested("after", start)
        # A client may train several times on the data of one round of the server.
        trained, count = self.train_from(start, purpose=f"cycle-{config['cycle']}")
        metrics |= self.tested("before", trained)
        return [trained, *shares], count, metrics

    def hold(self) -> None:
        """Wait until this client wants to upload; in a simulation a clock says when."""
        around, policy = self.around, self.around.settings.policy
        if around.look is None or around.folder is None or not policy.holds:
            return
        state, began = around.state.part("upload"), time.monotonic()
        last = state.load(before=around.round + 1)
        while last and touched(around.folder) <= last["touched"][0]:
            waited = time.monotonic() - began
            if policy.due(last["counts"], self.counts(), waited):
                break
            time.sleep(policy.poll)
            around.stream = around.look()
        moment = np.array([touched(around.folder)])
        state.save(around.round, {"counts": self.counts(), "touched": moment})

    def counts(self) -> IntArray:
        """Return the number of samples of each label, shape (L,)."""
        labels = self.data(self.around.round).labels
        return np.bincount(labels, minlength=self.around.stream.classes)

    def begin(self, parameters: list[Vector]) -> tuple[Vector, list[Vector]]:
        """Return the model to start from, and what is uploaded beside the trained."""
        return parameters[0], []

    def tested(self, name: str, model: Vector) -> dict[str, Scalar]:
        """Return a model's test on this client's own test samples, if it has any."""
        around = self.around
        view = self.data(around.round)
        count = len(view.test_indices)
        if count == 0:
            return {}
        loss, correct = around.evaluator.evaluate(model, view)
        found = {"correct": correct, "tested": count, "loss": loss}
        return {f"{name}_{key}": value for key, value in found.items()}

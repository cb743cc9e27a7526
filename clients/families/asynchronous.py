"""The client of methods without rounds: trains what it received, and uploads it.

A real device holds a task until its policy allows the upload: its data drifted, enough
data arrived, or somebody touched the trigger. The server does not wait for it.

Computes: local training, proximal if mu > 0, from the received model on its present
data; tests of the model that it uploads and, on a real device, of the one it received.
Sends: the trained model (d floats), the time stamp of the model that it started from.
Keeps: on a real device, its samples of each label at its last upload, and the stamp of
the model that it started from: a second request with that stamp means that the server
did not receive the upload.
"""

from __future__ import annotations

import time

import numpy as np

from cfl_flower.client.requests import UploadRequest
from cfl_flower.client.time_limit import without_limit
from cfl_flower.client.upload_policy import touched
from cfl_flower.types import Config, IntArray, Metrics, Reply, Vector
from clients.base import ClusteredClient


class AsynchronousClient(ClusteredClient):
    """A client that trains every model it receives, and uploads the result."""

    fine_tunes = False

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the received model; report tests of both models."""
        request = UploadRequest.from_config(config)
        assert request is not None
        stamp = request.stamp
        with without_limit():
            touched_at = self.hold(stamp)
        metrics: Metrics = {"stamp": stamp}
        start, shares = self.begin(parameters)
        if request.tested:
            metrics |= self.tested("after", start)
        # A client may train several times on the data of one round of the server.
        trained, count = self.train_from(start, purpose=f"cycle-{request.cycle}")
        metrics |= self.tested("before", trained)
        if touched_at is not None:
            upload = {
                "counts": self.counts(),
                "touched": np.array([touched_at]),
                "stamp": np.array([stamp]),
            }
            self.context.state.part("upload").save(self.context.round, upload)
        return [trained, *shares], count, metrics

    def hold(self, stamp: int) -> int | None:
        """Wait until an upload is due; return when the trigger was last touched.

        None in a simulation, where a virtual clock decides. A client does not wait if
        its last upload was trained from a model of the same stamp: it was lost.
        """
        context = self.context
        policy = self.settings.policy
        if context.look is None or context.folder is None or not policy.holds:
            return None
        began = time.monotonic()
        touched_at = touched(context.folder)
        last = context.state.part("upload").load(before=context.upcoming)
        if not last or last["stamp"][0] == stamp:
            return touched_at
        while (touched_at := touched(context.folder)) <= last["touched"][0]:
            waited = time.monotonic() - began
            if policy.due(last["counts"], self.counts(), waited):
                break
            time.sleep(policy.poll)
            context.stream = context.look()
        return touched_at

    def counts(self) -> IntArray:
        """Return the number of samples of each label, shape (L,)."""
        labels = self.data(self.context.round).labels
        return np.bincount(labels, minlength=self.classes)

    def begin(self, parameters: list[Vector]) -> tuple[Vector, list[Vector]]:
        """Return the model to start from, and further arrays to upload."""
        return parameters[0], []

    def tested(self, name: str, model: Vector) -> Metrics:
        """Return metrics of a model's test on this client's test samples, if any."""
        view = self.data(self.context.round)
        count = len(view.test_indices)
        if count == 0:
            return {}
        with self.context.model.uncounted():
            loss, correct = self.context.evaluator.evaluate(model, view)
        found = {"correct": correct, "tested": count, "loss": loss}
        return {f"{name}_{key}": value for key, value in found.items()}

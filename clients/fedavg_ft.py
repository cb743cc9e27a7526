"""FedAvg-FT's client: trains the global model, and fine-tunes it before a test.

Computes: local training; before a test, some more epochs. Sends: the trained model (d
floats). Keeps: nothing.
"""

from __future__ import annotations

from functools import partial

from cfl_flower.types import Vector
from clients.base import ClusteredClient, Test
from clients.families.fine_tuning import fine_tuned


class FedAvgFTClient(ClusteredClient):
    """FedAvg's client, whose tests are of a fine-tuned model."""

    def make_test(self, parameters: list[Vector]) -> Test:
        """Return the test of the global model after its fine-tuning."""
        model = fine_tuned(self, parameters[0])
        return partial(self.context.evaluator.evaluate, model)

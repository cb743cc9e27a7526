"""A client that finds drift by the losses of the model that it is served.

Needs river, `pip install 'river>=0.21'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from cfl_flower.clients.base import ClusteredClient, Config, Metrics
from river.drift import ADWIN, KSWIN

from cfl_flower.learning.testing import sample_losses
from cfl_flower.types import FloatArray, Vector

WINDOW = 2000
"""Losses that a client keeps. Those of a round are at most half of them, so that there
are earlier ones to compare with."""


def rises(detector: Any, losses: FloatArray, known: int) -> bool:
    """Return whether a fresh detector finds that the latest of n losses rose.

    A change within the first ``known`` losses was found before. Losses that fall are no
    drift: the model improved.
    """
    for place, loss in enumerate(losses.tolist()):
        detector.update(loss)
        if detector.drift_detected and place >= known:
            return float(losses[known:].mean()) > float(losses[:known].mean())
    return False


class DetectingClient(ClusteredClient):
    """A client that reports when a detector finds drift."""

    detector: ClassVar[Any]

    def report(
        self, config: Config, server_round: int, parameters: Sequence[Vector] = ()
    ) -> Metrics:
        """Return the representation if losses rose, or the server has none yet."""
        if "held" not in config or not parameters:
            return super().report(config, server_round, parameters)
        state = self.context.state.part("losses")
        known = state.load(before=self.context.round).get("losses", np.zeros(0))
        served = self.context.model.load(self.served(list(parameters)))
        losses = sample_losses(served, *self.samples(server_round)).double().numpy()
        # Of many samples, some at equal distances are enough.
        places = np.linspace(0, len(losses) - 1, min(len(losses), WINDOW // 2))
        some = losses[places.astype(int)]
        every = np.concatenate([known, some])[-WINDOW:]
        old = len(every) - len(some)
        drifted = old > 0 and rises(self.detector(), every, old)
        kept = some if drifted else every
        state.save(self.context.round, {"losses": kept})
        return super().report(config, server_round, parameters) if drifted else {}


class AdwinClient(DetectingClient):
    """A client with an adaptive window: the mean loss of its newer part is higher."""

    detector = ADWIN


class KswinClient(DetectingClient):
    """A client with a Kolmogorov-Smirnov test of the latest losses against earlier."""

    # The seed makes its draws the same in every run.
    detector = partial(KSWIN, seed=0)

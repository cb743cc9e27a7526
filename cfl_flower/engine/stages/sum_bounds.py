"""`strategy.robust=clip` with secure sums, where nobody sees a single model.

Devices shorten their own updates to a bound that the server sends, and tell how long
they were. The bound is a multiple of the median length of the last round. A device
that does not shorten its own stays behind its mask, so each mean is shortened, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cfl_flower.client.model_privacy import BASES, BOUNDS
from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.stages.privacy_budget import bases_of
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.privacy.clipping import shortened, update_length
from cfl_flower.types import UPDATE_LENGTHS, Plan, Result, Vector


class SumBounds(Stage):
    """Sends the bounds of a round, and applies them to its means."""

    def __init__(self) -> None:
        self._bounds: list[float] = []

    def plan(self, context: RoundContext, plan: Plan) -> Plan:
        """Name the bounds; before any length is known, updates change nothing."""
        if context.phase != "train":
            return plan
        typical = context.state.typical_lengths or [0.0] * len(plan.reply)
        multiple = context.config.strategy.robust_length
        self._bounds = [multiple * length for length in typical]
        bases = ",".join(map(str, bases_of(plan)))
        bounds = ",".join(map(str, self._bounds))
        return replace(plan, config={**plan.config, BASES: bases, BOUNDS: bounds})

    def receive(self, context: RoundContext, plan: Plan, results: Results) -> Results:
        """Shorten means that are too long, and note the lengths for the next round."""
        if context.phase != "train" or not results:
            return results
        for (array, model), total in results.sums.items():
            received = context.sent.models[model]
            mean = total.mean()
            if update_length(mean, received) > self._bounds[array]:
                single = ExactSum.empty(len(mean))
                single.add(shortened(mean, received, self._bounds[array]), total.weight)
                results.sums[array, model] = single
        told = [read_lengths(result, len(plan.reply)) for result in results]
        lengths = [each for each in told if each is not None]
        if lengths:
            typical = np.median(np.stack(lengths), axis=0)
            context.state.typical_lengths = typical.tolist()
        return results


def read_lengths(result: Result, count: int) -> Vector | None:
    """Return how long a participant says its updates were; None if it does not."""
    data = result.telemetry.get(UPDATE_LENGTHS)
    if not isinstance(data, bytes) or len(data) != 4 * count:
        return None
    lengths = np.frombuffer(data, np.float32)
    return lengths if np.isfinite(lengths).all() and (lengths >= 0).all() else None

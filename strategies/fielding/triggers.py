"""The trigger of global re-clustering: `strategy/trigger`.

Li et al., "Fielding: Clustered Federated Learning with Data Drift": a centre moved far
(Algorithm 2, lines 4 and 5), or a cluster became wide (Algorithm 4, line 9, with the
Delta of Appendix F.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from cfl_flower.clustering.centres import (
    adapt_delta,
    largest_shift,
    mean_centre_distance,
    needs_reclustering,
)
from cfl_flower.clustering.representations import Distance, largest_pairwise_distance
from cfl_flower.settings import Positive, settings
from cfl_flower.types import FloatArray
from strategies.fielding.state import FieldingState


@settings("strategy.trigger")
class CentreTrigger:
    """A centre moved by at least `threshold` times the mean distance of centres."""

    name: ClassVar[str] = "centre"

    reference: Literal["event", "recluster"] = "event"
    """A centre's shift is measured from before this drift event, or from the last
    re-clustering, with which slow drift accumulates."""

    def fires(
        self,
        state: FieldingState,
        before: FloatArray,
        threshold: float,
        distance: Distance,
        parts: Sequence[slice],
    ) -> bool:
        """Return whether a centre shifted far: Algorithm 2, lines 4 and 5.

        The drifted clients have moved in ``state``; ``before`` has the centres until
        then, (K, L). Any part of a representation may have shifted.
        """
        old = state.reference if self.reference == "recluster" else before
        members = state.sizes > 0
        for part in parts:
            centres = state.centres[:, part]
            theta = mean_centre_distance(centres[members], distance)
            shift = largest_shift(old[:, part], centres, distance)
            if needs_reclustering(shift, theta, threshold):
                return True
        return False


@settings("strategy.trigger")
class PairwiseTrigger:
    """Two clients of one cluster are farther apart than Delta, which adapts itself."""

    name: ClassVar[str] = "pairwise"

    delta: Positive = 0.1
    """c of Appendix F.2, where Delta starts."""

    def fires(
        self,
        state: FieldingState,
        before: FloatArray,
        threshold: float,
        distance: Distance,
        parts: Sequence[slice],
    ) -> bool:
        """Return whether the farthest pair exceeds Delta; adapt Delta in the state.

        Centres and the threshold are not used.
        """
        delta = self.current(state)
        points = state.representations
        wide = bool(largest_pairwise_distance(points, state.clusters, distance) > delta)
        state.consecutive = state.consecutive + 1 if wide else 0
        state.delta = adapt_delta(delta, self.delta, state.consecutive)
        return wide

    def current(self, state: FieldingState) -> float:
        """Return Delta as it is before a drift event."""
        return self.delta if state.delta is None else state.delta


Trigger: TypeAlias = CentreTrigger | PairwiseTrigger

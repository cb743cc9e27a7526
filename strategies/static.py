"""Static clustering: Fielding's start, never moved.

The baseline of Fielding's Appendix B.2: clients are clustered once by their first label
histogram (Algorithm 3) and stay, whatever happens to their data. A client that joins
later goes to the nearest centre. The settings of drift handling have no effect.
"""

from __future__ import annotations

from dataclasses import replace

from numpy.random import Generator

from cfl_flower.clustering.algorithms import nearest_centre
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import ClusteredStrategy, Description, Supports
from cfl_flower.types import IntArray, Plan
from strategies.fielding.method import Fielding

OF_DRIFT = tuple(
    f"strategy.{name}"
    for name in ["threshold", "reporters", "tolerance", "trigger", "threshold_learning"]
)
"""The settings of drift handling."""


class Static(Fielding):
    """Fielding without Algorithm 2."""

    supports = Supports(centres=True, unused=OF_DRIFT)

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Test the served models, without asking for representations."""
        return ClusteredStrategy.plan_evaluate(self, server_round, test)

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Leave clients in their clusters."""
        self.run.record.measures |= self.settings.privacy.spent(self.state.reports)

    def follow_drift(self, drifted: IntArray, rng: Generator) -> tuple[int, bool]:
        """Put newcomers into the nearest clusters, and leave the centres unchanged."""
        state = self.state
        points = state.representations[drifted]
        distance = self.settings.distance
        # Fielding, Algorithm 2, lines 1 and 2, for newcomers alone.
        state.clusters[drifted] = nearest_centre(points, state.centres, distance)
        return len(drifted), False

    def describe(self) -> Description:
        """Return no heterogeneity, as nothing is known of the data after the start."""
        return replace(super().describe(), heterogeneity=None)

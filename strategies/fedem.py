"""FedEM: common components, whose predictions each client mixes in its own proportions.

Marfoq et al., "Federated Multi-Task Learning under a Mixture of Distributions" (NeurIPS
2021; Algorithm 1). A participant receives all M components; finds how probable each
sample is to be of each of them, q (E-step); takes their means as its mixture pi, and
trains every component on the losses weighted by q (M-step). Each component becomes the
mean of the clients' versions, weighted by samples; pi stays on the device.

Server keeps: M models. Leaves the device: M models (M d floats).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import (
    ClusteredStrategy,
    Disclosure,
    Published,
    with_all_models,
)
from cfl_flower.settings import Count, require, settings
from cfl_flower.state import StrategySettings, no_clusters
from cfl_flower.types import Plan, SumSpec, Vector


@settings("strategy")
class FedEMSettings(StrategySettings):
    """FedEM's settings."""

    client: str = "clients.fedem.FedEMClient"
    components: Count = 3
    """M, the number of components."""

    def check_privacy(self) -> None:
        """Require as many components as the account is kept for."""
        count = self.components
        allowed = "3 with privacy=, whose account is of so many models"
        require(count == 3, "strategy.components", count, allowed)


class FedEM(ClusteredStrategy):
    """Algorithm 1, the server's part; all clients stay in cluster 0."""

    Settings = FedEMSettings
    published = Published(
        "the components", incomplete="each client's mixture of them never left it"
    )
    discloses = Disclosure(models=3)

    def initial_state(self) -> Any:
        """Return M components with seeds of their own, and no client."""
        models = self.run.initial_models(self.settings.components)
        return self.State([], no_clusters(), models)

    def sent(self) -> list[Vector]:
        """Return all that a client needs to train and to test: the components."""
        return list(self.state.models)

    def plan_train(self, server_round: int) -> Plan:
        """Send all components to the participants; what they return is added up."""
        sent = self.sent()
        plan = self.run.participants.send(server_round, sent)
        spec = SumSpec(tuple(range(len(sent))), self.settings.weighting == "samples")
        return replace(plan, sum_spec=spec)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Make each component the mean of its versions."""
        models = self.state.models
        for component in range(len(models)):
            # The mean of the clients' versions of a component, by samples.
            total = results.sums.get((component, component))
            if total is not None:
                models[component] = self.run.step(models[component], total.mean())

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Let every client test its mixture of all components."""
        plan = super().plan_evaluate(server_round, test)
        return with_all_models(replace(plan, models=self.sent())) if test else plan

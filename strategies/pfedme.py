"""pFedMe: personal models at a distance from the global one, by Moreau envelopes.

Dinh et al., "Personalized Federated Learning with Moreau Envelopes" (NeurIPS 2020;
Algorithm 1). For each mini-batch a participant makes K steps on
f(theta) + lambda/2 |theta - w|^2 and then moves its copy of the global model, w, by
eta lambda (theta - w). The server takes w <- (1 - beta) w + beta mean(w_i).

Server keeps: the model. Leaves the device: its w (d floats).
"""

from __future__ import annotations

from typing import Literal

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import ClusteredStrategy, Disclosure, Published, Supports
from cfl_flower.settings import Count, Magnitude, Positive, require, settings
from cfl_flower.state import StrategySettings, Weighting
from cfl_flower.types import Plan, Task


@settings("strategy")
class PFedMeSettings(StrategySettings):
    """pFedMe's settings."""

    client: str = "clients.pfedme.PFedMeClient"
    weighting: Weighting = "plain"
    inner_steps: Count = 5
    """K, steps of SGD on the personal model for each mini-batch."""
    attraction: Positive = 1.0
    """lambda, strength of the attraction between theta and w."""
    outer_rate: Positive = 0.01
    """eta, learning rate of the client's copy of the global model."""
    beta: Magnitude = 1.0
    """beta, the share of the clients' mean in the next global model."""
    tested: Literal["personal", "local"] = "personal"
    """A client is tested with its theta, or with its w after its last training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        why = "theta takes K steps of plain SGD"
        self.local.require_sgd(why)
        for name in ("momentum", "weight_decay", "mu"):
            value = getattr(self.local, name)
            require(value == 0, f"strategy.local.{name}", value, f"0: {why}")


class PFedMe(ClusteredStrategy):
    """Algorithm 1, the server's part."""

    Settings = PFedMeSettings

    published = Published("the global model, not the clients' own ones")
    supports = Supports(server_optimizer=False)
    discloses = Disclosure()

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Move the model towards the mean of the results."""
        beta = self.settings.beta
        mean = self.run.average(results)
        # Algorithm 1: w <- (1 - beta) w + beta mean(w_i).
        moved = mean if beta == 1 else (1 - beta) * self.state.models[0] + beta * mean
        if beta > 1:
            # Beyond the mean of running variances there are negative ones.
            moved[self.run.weights :] = mean[self.run.weights :]
        self.state.models = [moved]

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Let every client test its own model, or the initial one if it has none."""
        return Plan([Task(client) for client in self.state.clients] if test else [])

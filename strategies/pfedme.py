"""pFedMe: personal models at a distance from the global one, by Moreau envelopes.

Dinh et al., "Personalized Federated Learning with Moreau Envelopes" (NeurIPS 2020;
Algorithm 1). For each mini-batch a participant makes K steps on
f(theta) + lambda/2 |theta - w|^2 and then moves its copy of the global model, w, by
eta lambda (theta - w). The server takes w <- (1 - beta) w + beta mean(w_i).

Server keeps: the model. Leaves the device: its w (d floats).

Deviations and readings, as in FedCCFA's comparison where not said otherwise:

* theta starts from w in every round.
* Which model a client is tested with: `tested=local`, its w after its last training, as
  the comparison's code does; `personal`, its theta, as the paper does.
* The inner steps are plain SGD at `local.learning_rate`, without momentum and weight
  decay; `outer_rate` is eta.
* Results are averaged by samples; the paper's mean is plain (`weighting=plain`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cfl_flower.communication.results import Results
from cfl_flower.settings import require, require_one_of
from cfl_flower.types import Plan, Task
from strategies.base import ClusteredStrategy, Published, StrategySettings, Supports


@dataclass(frozen=True)
class PFedMeSettings(StrategySettings):
    """pFedMe's settings.

    Attributes
    ----------
    inner_steps : int
        K.
    attraction : float
        lambda.
    outer_rate : float
        eta.
    beta : float
        The share of the clients' mean in the next global model.
    tested : {"local", "personal"}
    """

    inner_steps: int = 5
    attraction: float = 1.0
    outer_rate: float = 0.01
    beta: float = 1.0
    tested: str = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = self.inner_steps
        require(steps >= 1, "strategy.inner_steps", steps, "at least 1")
        for name in ("attraction", "outer_rate", "beta"):
            value = getattr(self, name)
            ok = 0 < value < math.inf
            require(ok, f"strategy.{name}", value, "a number above 0")
        require_one_of("strategy.tested", self.tested, ("local", "personal"))


class PFedMe(ClusteredStrategy):
    """Algorithm 1, the server's part."""

    Settings = PFedMeSettings

    published = Published("the global model, not the clients' own ones")
    supports = Supports(server_optimizer=False)

    def absorb_train(self, round: int, results: Results) -> None:
        """Move the model towards the mean of the results."""
        if results:
            model, beta = self.state.models[0], self.settings.beta
            mean = self.average(results)
            self.state.models = [
                (1 - beta) * model + beta * mean if beta != 1 else mean
            ]

    def plan_evaluate(self, round: int, test: bool) -> Plan:
        """Let every client test its own model; who has none, the initial one."""
        return Plan([Task(client) for client in self.state.clients] if test else [])

"""The settings of Ditto and StoCFL: a global model, and others held near it.

Models that clients are served minimise f(theta) + lambda/2 ||theta - omega||^2 (StoCFL,
eq. 3; Ditto, eq. 1): in Ditto one for each client, in StoCFL for each cluster.
"""

from __future__ import annotations

from typing import Literal

from cfl_flower.settings import NonNegative, settings
from cfl_flower.state import StrategySettings


@settings("strategy")
class BilevelSettings(StrategySettings):
    """The settings of methods with a global model and others near it."""

    client: str = "clients.ditto.DittoClient"
    regularisation: NonNegative = 0.05
    """lambda, how strongly models are held near the global model omega. For plain SGD
    to converge, lambda * eta must stay below 2."""
    start: Literal["omega", "initial"] = "omega"
    """What a model is first trained from: omega as received in that round, or w_0."""

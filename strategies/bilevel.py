"""A global model, and others that are held near it: Ditto and StoCFL.

Everyone trains the global model omega on its own data; the models that clients are
served minimise f(theta) + lambda/2 ||theta - omega||^2 (StoCFL, eq. 3; Ditto, eq. 1).
In Ditto each client has one of its own, in StoCFL each cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cfl_flower.settings import require, require_one_of
from cfl_flower.state import Weighting
from strategies.base import StrategySettings

STARTS = ("omega", "initial")


@dataclass(frozen=True)
class BilevelSettings(StrategySettings):
    """The settings of methods with a global model and others near it.

    Attributes
    ----------
    regularisation : float
        lambda. For plain SGD to converge, lambda * eta must stay below 2.
    start : {"omega", "initial"}
        From what a model is first trained: the global model of that round, or w_0.
    """

    weighting: Weighting = "plain"
    regularisation: float = 0.05
    start: str = "omega"

    def __post_init__(self) -> None:
        super().__post_init__()
        value = self.regularisation
        ok = 0 <= value < math.inf
        require(ok, "strategy.regularisation", value, "a number of at least 0")
        require_one_of("strategy.start", self.start, STARTS)

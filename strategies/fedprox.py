"""FedProx: FedAvg whose clients are held near the model they received.

Li et al., "Federated Optimization in Heterogeneous Networks" (MLSys 2020). The local
objective is f_i(w) + mu/2 ||w - w_t||^2 (eq. 2), which every local optimiser here can
have; FedProx is FedAvg with `strategy.local.mu` above 0.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial

from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.settings import settings
from cfl_flower.state import StrategySettings
from strategies.fedavg import FedAvg


@settings("strategy")
class FedProxSettings(StrategySettings):
    """The settings of every method; mu is FedScale's default."""

    local: LocalTraining = field(default_factory=partial(LocalTraining, mu=0.1))


class FedProx(FedAvg):
    """FedAvg; the proximal term is a setting of the local optimiser."""

    Settings = FedProxSettings

"""IFCA: clients choose the model with the smallest loss.

Ghosh et al., "An Efficient Framework for Clustered Federated Learning" (NeurIPS 2020;
Algorithm 1, model averaging). In each round participants receive all m models; each
trains the one with the smallest loss on its training data; every model becomes the mean
of those trained from it. With secure sums participants choose before they train, as
masks are of a group. How later newcomers join, and the optional migration, are in
`strategies.families.choosing`.

Server keeps: m models. Leaves the device: a cluster's number; the model (d floats).
"""

from __future__ import annotations

from typing import Literal

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import Disclosure, with_all_models
from cfl_flower.settings import require, settings
from cfl_flower.state import Weighting
from cfl_flower.types import Plan, Result
from strategies.families.choosing import CHOICE, ChoosingSettings, ChoosingStrategy


@settings("strategy")
class IFCASettings(ChoosingSettings):
    """IFCA's settings."""

    client: str = "clients.ifca.IFCAClient"
    weighting: Weighting = "plain"
    tested: Literal["last", "best"] = "last"
    """Clients are tested with the model that they chose when they last trained, or with
    the one that has the smallest loss on their training data now."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.tested == "last" or not self.migration
        allowed = "last with strategy.migration=true, which chooses by itself"
        require(ok, "strategy.tested", self.tested, allowed)


class IFCA(ChoosingStrategy):
    """Algorithm 1 with model averaging."""

    Settings = IFCASettings
    discloses = Disclosure(uncovered=CHOICE)

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Put the first clients into cluster 0; let later ones choose."""
        if self.state.clients:
            super().welcome(server_round, newcomers)
        else:
            self.admit(server_round, newcomers, [0] * len(newcomers))

    def plan_train(self, server_round: int) -> Plan:
        """Sample participants, and send all models to each, or what it chose."""
        if self.choose_in_training:
            return with_all_models(super().plan_train(server_round))
        if len(self.state.models) == 1:
            return super().plan_train(server_round)
        return self.plan_after_choices(server_round)

    @property
    def choose_in_training(self) -> bool:
        """Whether a trained model comes with its choice: it does if there is one."""
        return not self.run.config.privacy.secure_sums and len(self.state.models) > 1

    def read_result(self, phase: str, result: Result) -> Result:
        """Read the choice of a cluster, which must come with a trained model."""
        if phase == "train" and self.choose_in_training:
            return self.read_choice(result)
        return super().read_result(phase, result)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Move participants to the clusters that they chose, then average in each."""
        if self.choose_in_training:
            self.move(results)
        super().absorb_train(server_round, results)

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Test the model of the last choice, or let clients choose for the test."""
        plan = super().plan_evaluate(server_round, test)
        last = self.settings.tested == "last"
        return plan if last or not test else with_all_models(plan)

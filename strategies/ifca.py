"""IFCA: clients choose the model with the smallest loss.

Ghosh et al., "An Efficient Framework for Clustered Federated Learning" (NeurIPS 2020;
Algorithm 1, model averaging). Each round: participants receive all m models -> each
chooses the one with the smallest loss on its training data, and trains it -> average
per cluster.

Server keeps: m models. Leaves the device: the number of a cluster; the trained model
(d floats).

Deviations and readings:

* The m models start from independent seeds, as in FlexCFL's comparison; nothing is
  restarted when clusters do not separate.
* The first clients start in cluster 0: to choose among untrained models says nothing.
  Who joins later chooses, and everyone does when it trains. Who does not take part
  keeps its last choice, as in FlexCFL's comparison, and is tested with that model;
  with `tested=best` every client chooses anew for each test, as it would for its
  predictions. The models that it chooses among are sent for the test alone.
* With `migration` a client whose label counts shifted fetches all models and chooses
  again (FlexCFL's IFCA-MIG). In a simulation, and on devices as it is now, the models
  lie in every test message; only those who needed them are charged.
* Models are averaged plainly, as in the paper. FlexCFL's published figures come from
  code in which a group takes only its first client's update; here means are means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.settings import require, require_one_of
from cfl_flower.state import Weighting
from cfl_flower.types import Plan, Result, Task
from strategies.choosing import ChoosingSettings, ChoosingStrategy


@dataclass(frozen=True)
class IFCASettings(ChoosingSettings):
    """IFCA's settings.

    Attributes
    ----------
    tested : {"last", "best"}
        The model that a client chose when it last trained; or the one that has the
        smallest loss on its training data now.
    """

    weighting: Weighting = "plain"
    tested: str = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("strategy.tested", self.tested, ("last", "best"))
        ok = self.tested == "last" or not self.migration
        allowed = "last with strategy.migration=true, which chooses by itself"
        require(ok, "strategy.tested", self.tested, allowed)


class IFCA(ChoosingStrategy):
    """Algorithm 1 with model averaging."""

    Settings = IFCASettings

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Put the first clients into cluster 0; let later ones choose."""
        if self.state.clients:
            super().welcome(round, newcomers)
        else:
            self.admit(round, newcomers, [0] * len(newcomers))

    def read_result(self, phase: str, result: Result) -> Result:
        """Read the choice of a cluster, which a trained model must bring."""
        if phase == "train":
            return self.read_choice(result)
        return super().read_result(phase, result)

    def plan_train(self, round: int) -> Plan:
        """Send all models to the participants."""
        plan = super().plan_train(round)
        everything = tuple(range(len(plan.models)))
        tasks = [Task(task.client, everything) for task in plan.tasks]
        return Plan(tasks, plan.models, plan.config, plan.reply)

    def absorb_train(self, round: int, results: Results) -> None:
        """Take the participants' choices, then average per cluster."""
        rows = self.rows(result.client for result in results)
        chosen = [result.report for result in results]
        self.state.clusters[rows] = np.array(chosen, np.int64)
        super().absorb_train(round, results)

    def plan_evaluate(self, round: int, test: bool) -> Plan:
        """Test the model of the last choice, or let clients choose for the test."""
        if not test or self.settings.tested == "last":
            return super().plan_evaluate(round, test)
        everything = tuple(range(len(self.state.models)))
        tasks = [Task(client, everything) for client in self.state.clients]
        return Plan(tasks, self.state.models)

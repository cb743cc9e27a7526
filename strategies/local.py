"""Local: every client trains alone; no model is communicated. The lower reference.

Whenever its data are new a client trains a model on them, at once and from the initial
one, for as long as FedAvg asks of a client in the whole run: that is M/N of all rounds.
If its data never change, the comparison is at equal computation.
"""

from __future__ import annotations

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import (
    UNAVERAGED,
    ClusteredStrategy,
    Disclosure,
    Published,
    Supports,
)
from cfl_flower.settings import settings
from cfl_flower.state import StrategySettings
from cfl_flower.types import Plan, Result, Task
from clients.local import BUDGET


@settings("strategy")
class LocalSettings(StrategySettings):
    """The settings of every method; nothing is averaged."""

    client: str = "clients.local.LocalClient"


class Local(ClusteredStrategy):
    """Each client is a cluster of its own, whose model never leaves it."""

    Settings = LocalSettings
    published = Published(incomplete="each client's model is its own and never left it")
    supports = Supports(server_optimizer=False, unused=UNAVERAGED)
    discloses = Disclosure(models=0)

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Make each newcomer a cluster of its own."""
        known = len(self.state.clients)
        self.state.join(newcomers, np.arange(known, known + len(newcomers)))

    def plan_train(self, server_round: int) -> Plan:
        """Let all clients look whether their data are new, and train if they are."""
        config = self.run.config
        share = config.participants / config.clients
        budget = max(1, round(config.rounds * share))
        able = np.flatnonzero(self.run.participants.with_samples())
        tasks = [Task(self.state.clients[row]) for row in able]
        return Plan(tasks, config={BUDGET: budget})

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Do nothing: the results stayed at the clients."""

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Let every client test its own model."""
        return Plan([Task(client) for client in self.state.clients] if test else [])


@settings("strategy")
class LocalRoundsSettings(LocalSettings):
    """The settings of every method; nothing is averaged."""

    client: str = "clients.local.LocalRoundsClient"


class LocalRounds(Local):
    """A client trains when it takes part in a round: `strategy=local_rounds`.

    It goes on with its model, so that after a drift it is tested with one of its old
    data until then. The comparison is at equal computation.
    """

    Settings = LocalRoundsSettings

    def plan_train(self, server_round: int) -> Plan:
        """Let M random clients train their own models, which are not sent."""
        rng = self.run.rng("selection", server_round)
        able = np.flatnonzero(self.run.participants.with_samples())
        count = min(self.run.config.participants, len(able))
        chosen = self.run.config.selection.choose(
            able, count, rng, self.run.participants.known(server_round)
        )
        return Plan([Task(self.state.clients[row]) for row in chosen])

"""The engine's rounds, with an app's own arrays, metrics and nodes.

What a method may use is that of any run; only where our data or network would answer,
the app does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from flwr.app import Message, MetricRecord

from cfl_flower.client.drift_report import ReportRequest
from cfl_flower.communication.results import Results
from cfl_flower.dropin.carrier import Carrier
from cfl_flower.engine.rounds import Rounds
from cfl_flower.engine.services import RunServices
from cfl_flower.errors import ConfigError, refused
from cfl_flower.runs.record import ClientRow
from cfl_flower.settings import require
from cfl_flower.types import BoolArray, IntArray, Plan, Task, Vector

log = logging.getLogger(__name__)


def find_width(carrier: Carrier, timeout: float) -> None:
    """Ask all nodes to report, so that their reader knows how many numbers they say.

    A method has to know it before its first round. ``timeout`` is in seconds.
    """
    carrier.discover()
    tasks = [Task(client) for client in carrier.clients]
    kind = carrier.terms.settings.representation.name
    plan = Plan(tasks, [], ReportRequest(kind).to_config())
    messages = carrier.messages("query", 1, plan)
    replies = carrier.grid.send_and_receive(messages, timeout=timeout)
    carrier.reader.learn_width(carrier.collect(replies, "query"))


class PlainServices(RunServices):
    """What a method may use, with the app's arrays as the network."""

    @property
    def carrier(self) -> Carrier:
        """What brings tasks to the app."""
        return cast(Carrier, self._context.fleet)

    def initial_model(self, seed: int | None = None) -> Vector:
        """Return the app's initial arrays, or those of another seed."""
        if seed is None:
            return self.carrier.initial
        reseeded = self.carrier.terms.reseeded
        if reseeded is None:
            raise ConfigError(
                "reseeded=None is not allowed, since the clusters of this method start "
                "from different models; give reseeded=lambda seed: ArrayRecord(...), "
                "the app's initial arrays with another seed"
            )
        with refused("reseeded", "return arrays such as initial_arrays"):
            return self.carrier.layout.read(reseeded(seed))[0]

    def true_concepts(self, server_round: int) -> IntArray | None:
        """Return the cluster that each node is given in a round."""
        concepts = self.carrier.terms.concepts
        if concepts is None:
            return None
        # There is no round after the last, for which to prepare.
        given: Any = concepts(min(server_round, self.config.rounds)) or {}
        state: Any = self._context.state
        found = [given.get(int(each)) for each in state.clients]
        there = list(self.carrier.grid.get_node_ids())
        for row in np.flatnonzero(~np.isin(state.clients, there)):
            # Who has left stays where it was.
            found[row] = state.concepts[state.clusters[row]]
        ok = all(isinstance(each, int | np.integer) and each >= 0 for each in found)
        require(ok, "concepts", given, "a map of each node to a whole number")
        return np.array(found, np.int64)

    @property
    def network(self) -> Any:
        """What is known of the app's network: the numbers in an embedding."""
        return SimpleNamespace(split=SimpleNamespace(width=self.carrier.reader.width))

    @property
    def weights(self) -> int:
        """The numbers of a model: which of them are statistics, nobody says here."""
        return len(self.carrier.initial)


class PlainRounds(Rounds):
    """The engine's rounds, with plain messages, of which the app's metrics are kept."""

    kind_of_services = PlainServices

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.history: dict[int, dict[int, int]] = {}
        self.carrier = cast(Carrier, self.fleet)
        # Oracle asks whether there is a stream whose concepts are known.
        self.services.timeline = cast(Any, self.carrier.terms.concepts)
        # Who is there is drawn from, as FedAvg does.
        self.participants.eligible.append(self.present)

    def present(self) -> BoolArray:
        """Return which clients are there, shape (n,)."""
        return np.isin(self.context.state.clients, self.carrier.clients)

    def meet_newcomers(self) -> None:
        """Meet newcomers, and see how many nodes a fraction is."""
        self.carrier.failures = []
        super().meet_newcomers()
        terms = self.carrier.terms
        there = len(self.carrier.clients)
        drawn = max(int(there * terms.fraction_train), terms.min_train_nodes)
        # All is all, however a method divides it among clusters.
        every = {"sampling": "all"} if drawn >= there else {}
        self.context.config = replace(
            self.config,
            clients=there,
            participants=min(drawn, there),
            strategy=replace(self.config.strategy, **every),
        )
        if self.context.number == 1:
            try:
                self.config.strategy.check_run(there)
            except ConfigError as error:
                log.warning("%s nodes in round 1: %s", there, error)

    def aggregate_train(self, replies: Iterable[Message]) -> tuple[None, None]:
        """Take in the training results of those who were asked, which may be nobody."""
        self.context.record.participants = self.carrier.forget_unasked()
        return super().aggregate_train(replies)

    def aggregate_evaluate(self, replies: Iterable[Message]) -> MetricRecord | None:
        """Close a round with the tests of those who were asked."""
        self.carrier.forget_unasked()
        return super().aggregate_evaluate(replies)

    def note_tests(self, results: Results) -> list[ClientRow]:
        """Note the clusters; what the app measures is its own affair."""
        self.history[self.context.number] = self.clusters()
        return []

    def clusters(self) -> dict[int, int]:
        """Return the cluster of each node now."""
        state = self.context.state
        pairs = zip(state.clients, state.clusters.tolist(), strict=True)
        return {int(client): cluster for client, cluster in pairs}

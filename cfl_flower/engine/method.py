"""The steps of a round that papers decide, each of them FedAvg's until overridden.

`Method` speaks of clients, clusters and models only: who joins which cluster, who
trains what, what the results change. `engine.rounds` carries it out on Flower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import nn

from cfl_flower.clustering.representations import digest
from cfl_flower.communication.results import Results
from cfl_flower.engine.privacy_budget import Disclosure, PrivacyGuard, check_privacy
from cfl_flower.engine.secure_sums import SecureSums, check_secure_sums
from cfl_flower.errors import InvalidResultError
from cfl_flower.learning.aggregation import Memory, QFedAvg, mean_model
from cfl_flower.learning.selection import Known, share_participants
from cfl_flower.models import count_weights, hollow_network, initial_vector
from cfl_flower.runs.record import RoundRecord
from cfl_flower.seeding import generator
from cfl_flower.settings import locate, require
from cfl_flower.state import ClusteredState, StrategySettings, no_clusters
from cfl_flower.types import (
    BoolArray,
    ClientId,
    FloatArray,
    IntArray,
    Plan,
    Result,
    Task,
    Vector,
)

if TYPE_CHECKING:
    from cfl_flower.config.compose import RunConfig
    from cfl_flower.data.worlds.timeline import Timeline


def read_number(result: Result, name: str, allowed: range) -> int:
    """Return a whole number that a client reports.

    Raises `InvalidResultError` if it is none of those allowed.
    """
    value = result.metrics.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        detail = f"{name}={value!r}, not one of {allowed[0]} to {allowed[-1]}"
        raise InvalidResultError("representation", detail)
    return value


def with_all_models(plan: Plan) -> Plan:
    """Return a plan in which every client receives all models."""
    everything = tuple(range(len(plan.models)))
    return replace(plan, tasks=[Task(task.client, everything) for task in plan.tasks])


@dataclass(frozen=True)
class Published:
    """What the server's models are to those who export them."""

    models: str = "each cluster's model"
    """What the models are to the clients."""
    incomplete: str = ""
    """Why they cannot be used alone; empty if they can."""


@dataclass(frozen=True)
class Supports:
    """Which settings of other groups a method can use."""

    server_optimizer: bool = True
    """False if it has a step of its own from results to models."""
    selection: bool = True
    """False if it selects nobody."""
    centres: bool = False
    """Whether clients have a distance to their cluster's centre."""


@dataclass(frozen=True)
class Description:
    """What is known of a method's clusters, for measures and selections."""

    comparable: bool = True
    """Whether participants' first arrays are new versions of their clusters' models, so
    that the distance between the two says something."""
    heterogeneity: float | None = None
    """The mean client distance within clusters."""
    centre_distances: Callable[[], FloatArray] | None = None
    """Returns the distance of each client to its cluster's centre, shape (n,)."""
    class_clusters: tuple[Sequence[ClientId], IntArray] | None = None
    """m clients and their cluster in each class, (m, L), -1 without samples of it; of a
    method whose clusters are not of whole clients."""


class Method:
    """Per-cluster FedAvg, open at every step where methods differ.

    ``timeline`` has the true concept of every client, where the data are simulated.
    """

    Settings: ClassVar[type[StrategySettings]] = StrategySettings
    State: ClassVar[type[ClusteredState]] = ClusteredState
    published: ClassVar[Published] = Published()
    supports: ClassVar[Supports] = Supports()
    discloses: ClassVar[Disclosure | None] = None
    """What leaves the clients; None if nobody has said, which `privacy=` refuses."""

    def __init__(self, config: RunConfig, timeline: Timeline | None = None) -> None:
        self.config = config
        self.timeline = timeline
        self.settings: Any = config.strategy
        self.state = self.initial_state()
        self.record = RoundRecord(0)
        # The stratum of each participant drawn, and how many are wanted of each.
        self._strata: dict[ClientId, int] = {}
        self._shares = np.zeros(0, np.int64)
        self._memories: dict[str, Memory] = {}
        self._guard: PrivacyGuard | None = None
        if config.privacy.on and self.discloses is not None:
            self._guard = PrivacyGuard(config, self.discloses)
        self._sums = SecureSums(config) if config.privacy.secure_sums else None

    @classmethod
    def check(cls, config: RunConfig) -> None:
        """Raise `ConfigError` for settings of other groups that do not fit."""
        names = config.names
        optimizer = config.server_optimizer
        selection = config.selection
        supports = cls.supports
        method = f"strategy={names['strategy']}"
        # The loss is reported by a client that trains the one model it receives.
        client = locate(config.strategy.client)
        plain = client.fit.__qualname__ == "ClusteredClient.fit"
        average = not (optimizer.remembers or optimizer.by_loss)
        for ok, group, allowed in (
            (
                average or supports.server_optimizer,
                "server_optimizer",
                f"another one with {method}, which has a step of its own",
            ),
            (
                plain or client.reports_loss or not optimizer.by_loss,
                "server_optimizer",
                f"another one with {method}, whose clients do not report the loss of "
                "one received model",
            ),
            (
                supports.centres or not selection.by_distance,
                "selection",
                f"random or oort with {method}, which has no representations",
            ),
            (
                supports.selection or not selection.learns,
                "selection",
                f"random with {method}, which selects nobody",
            ),
        ):
            require(ok, group, names[group], allowed)
        check_privacy(config, cls.discloses)
        every = config.system.checkpoint_every
        hidden = config.privacy.on or config.privacy.secure_sums
        # A server that dies goes back to its checkpoint, account and all. Devices know
        # what they sent in the last rounds, and answer earlier ones anew.
        reason = "1 with privacy, so that a restart repeats no round that was sent"
        require(every == 1 or not hidden, "system.checkpoint_every", every, reason)
        if config.privacy.secure_sums:
            check_secure_sums(config, cls.discloses)

    # What a paper decides, in the order of a round --------------------------------

    def initial_state(self) -> Any:
        """Return the state before any client is known: one initial model."""
        return self.State([], no_clusters(), [self.initial_model()])

    def hello(self, clients: Sequence[ClientId]) -> Plan:
        """Return what clients are asked before they are known: their sizes."""
        return Plan([Task(client) for client in clients])

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Take newcomers into the state, all into cluster 0."""
        self.join(newcomers, np.zeros(len(newcomers), np.int64))

    def read_result(self, phase: str, result: Result) -> Result:
        """Return a result with its report parsed, if this method has one.

        Raises `InvalidResultError` if it must not enter the state.
        """
        return result

    def plan_train(self, server_round: int) -> Plan:
        """Sample participants; each trains its cluster's model."""
        state = self.state
        tasks = [
            Task(state.clients[row], (int(state.clusters[row]),))
            for row in self.choose_participants(server_round)
        ]
        return Plan(tasks, state.models, {}, reply=(len(state.models[0]),))

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average each cluster's results; a cluster without any keeps its model."""
        rows = self.rows(result.client for result in results)
        clusters = self.state.clusters[rows]
        for cluster in np.unique(clusters):
            members = [results[i] for i in np.flatnonzero(clusters == cluster)]
            models = self.state.models
            models[cluster] = self.next_model(models[cluster], members)

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Let every client test the model it is served."""
        state = self.state
        if not test:
            return Plan([])
        pairs = zip(state.clients, state.clusters.tolist(), strict=True)
        return Plan([Task(client, (k,)) for client, k in pairs], state.models)

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Take in what clients report about their data of the next round."""

    def describe(self) -> Description:
        """Return what is known of the clusters now."""
        return Description()

    # What papers share ---------------------------------------------------------------

    def join(self, newcomers: list[Result], clusters: IntArray) -> None:
        """Append newcomers to the state."""
        state = self.state
        state.clients = state.clients + [result.client for result in newcomers]
        state.clusters = np.append(state.clusters, clusters)

    def initial_model(self, seed: int | None = None) -> Vector:
        """Return the common initial model, (d,), or one with a seed of its own."""
        dataset = self.config.dataset
        model = self.config.model
        seed = self.config.seed if seed is None else seed
        return initial_vector(model, dataset.shape, dataset.classes, seed)

    def hollow_network(self) -> nn.Module:
        """Return the run's network without weights, to look at its layers."""
        dataset = self.config.dataset
        return hollow_network(self.config.model, dataset.shape, dataset.classes)

    def rng(self, purpose: str, server_round: int) -> np.random.Generator:
        """Return the server's generator of a purpose and round."""
        return generator(self.config.seed, purpose, server_round)

    def choose_participants(self, server_round: int) -> list[int]:
        """Return the rows of at most M participants, from all or from each cluster.

        More than M with `devices.over_commitment`: the first M to finish are kept.
        """
        state = self.state
        rng = self.rng("selection", server_round)
        strata = state.clusters
        sizes = state.sizes
        if self.settings.sampling == "all":
            strata = np.zeros_like(strata)
            sizes = np.array([len(strata)])
        able = self.with_samples()
        if self._guard:
            able &= self._guard.able(state.privacy, state.clients)
        if not able.all():
            sizes = np.bincount(strata[able], minlength=len(sizes))
            strata = np.where(able, strata, -1)
        known = self.known(server_round)
        chosen: dict[int, int] = {}
        shares = share_participants(self.config.participants, sizes, rng)
        asked_of = self.config.devices.over_commit(shares, sizes, rng)
        for stratum, asked in enumerate(asked_of.tolist()):
            members = np.flatnonzero(strata == stratum)
            found = self.config.selection.choose(members, asked, rng, known).tolist()
            chosen |= dict.fromkeys(found, stratum)
        self._strata = {state.clients[row]: k for row, k in chosen.items()}
        self._shares = shares
        return sorted(chosen)

    def with_samples(self) -> BoolArray:
        """Return which clients can train, shape (n,): all if nobody has samples."""
        empty = set(self.state.empty)
        able = np.array([each not in empty for each in self.state.clients], bool)
        return able if able.any() else ~able

    def send_to_participants(self, server_round: int, arrays: list[Vector]) -> Plan:
        """Sample participants; each receives all arrays, and replies with as many."""
        clients = [
            self.state.clients[row] for row in self.choose_participants(server_round)
        ]
        tasks = [Task(client, tuple(range(len(arrays)))) for client in clients]
        return Plan(tasks, arrays, {}, tuple(map(len, arrays)))

    def known(self, server_round: int) -> Known:
        """Return what a selection can choose by."""
        history = self.state.history.extended(len(self.state.clients))
        by_distance = self.config.selection.by_distance
        measure = self.describe().centre_distances if by_distance else None
        return Known(server_round, history, measure() if measure else np.zeros(0))

    def next_model(self, model: Vector, results: list[Result]) -> Vector:
        """Return a cluster's next model, through the server optimiser."""
        optimizer = self.config.server_optimizer
        if not isinstance(optimizer, QFedAvg):
            return self.step(model, self.average(results))
        arrays = [result.arrays[0] for result in results]
        losses = np.array([float(r.telemetry["start_loss"]) for r in results])
        return optimizer.combine(model, arrays, losses, self.weights)

    def step(self, model: Vector, mean: Vector, absent: int = 0) -> Vector:
        """Return the server optimiser's step from a model to its results' mean, (d,).

        What it remembers goes by the model's content: it stays with a model whose
        number changes, and a model that was made otherwise begins anew. ``absent``
        counts weights of the network that are not in the model: a personal classifier.
        """
        optimizer = self.config.server_optimizer
        memories = self.state.memories
        if not optimizer.remembers:
            return mean
        memory = memories.get(digest(model), [])
        fresh, memory = optimizer.step(model, mean, self.weights - absent, memory)
        self._memories[digest(fresh)] = memory
        return fresh

    @cached_property
    def weights(self) -> int:
        """The number of the network's trainable weights, without running statistics."""
        return count_weights(self.hollow_network())

    def average(self, results: list[Result]) -> Vector:
        """Return the mean of the results' first arrays, weighted as configured."""
        arrays = [result.arrays[0] for result in results]
        return mean_model(arrays, [self.weight(result) for result in results])

    def weight(self, result: Result) -> float:
        """Return the weight of a result in a mean, as configured."""
        by_samples = self.settings.weighting == "samples"
        return float(result.num_examples) if by_samples else 1.0

    def rows(self, clients: Iterable[ClientId]) -> IntArray:
        """Return the rows of clients in the state's arrays."""
        place = {client: row for row, client in enumerate(self.state.clients)}
        return np.array([place[client] for client in clients], np.int64)

    def true_concepts(self, server_round: int) -> IntArray | None:
        """Return the true concept of each client of the state, where it is known."""
        if self.timeline is None:
            return None
        return self.timeline.concepts(server_round)[
            np.array(self.state.clients, np.int64)
        ]

"""The frame that every synchronous method stands in.

`ClusteredStrategy` is a Flower strategy. A method decides, in terms of clients: who
joins which cluster, who trains what, what the results change. The frame turns its plans
into Messages and replies into results, and Flower's own `start` drives it. So a file
beside this one holds a paper and no plumbing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from sklearn.metrics import adjusted_rand_score
from torch import nn

from cfl_flower.aggregation import Memory, QFedAvg, mean_model
from cfl_flower.attacks import malicious_clients
from cfl_flower.devices import first_to_finish
from cfl_flower.errors import InvalidResultError, NoValidResultError
from cfl_flower.fleet import Fleet, Outcome
from cfl_flower.folding import Sums, add_result, merge_sums, portions
from cfl_flower.measures import discrepancies, note_tests
from cfl_flower.models import hollow_network, initial_vector
from cfl_flower.representations import digest
from cfl_flower.results import ClientRow, RoundRecord
from cfl_flower.seeding import generator
from cfl_flower.selection import Known, share_participants
from cfl_flower.settings import locate, require
from cfl_flower.types import (
    ClientId,
    Failure,
    FloatArray,
    IntArray,
    Plan,
    Result,
    Scalar,
    Task,
    Vector,
)
from cfl_flower.virtual_clock import VirtualClock
from strategies.state import ClusteredState, StrategySettings, no_clusters

if TYPE_CHECKING:
    from cfl_flower.config import RunConfig
    from cfl_flower.data.world import Timeline

__all__ = ["ClusteredState", "ClusteredStrategy", "StrategySettings", "no_clusters"]
"""What the file of a method begins with."""


@dataclass(frozen=True)
class Drawn:
    """What the participants of a round were drawn from.

    Attributes
    ----------
    pots : dict
        The pot of each: 0 for all clients, or its cluster.
    shares : int array of shape (P,)
        How many of each pot are wanted.
    """

    pots: dict[ClientId, int]
    shares: IntArray


class Callback(Protocol):
    """What happens around a run; a method itself never prints or writes."""

    def on_round(
        self, record: RoundRecord, rows: Sequence[ClientRow], state: ClusteredState
    ) -> None:
        """Take in a finished round and the state after it."""


class ClusteredStrategy(Strategy):
    """Per-cluster FedAvg, open at every step where methods differ.

    Parameters
    ----------
    config : RunConfig
    fleet : Fleet
    timeline : Timeline or None
        The true concept of every client, where the data are simulated.
    callbacks : sequence of Callback
    """

    Settings: ClassVar[type[StrategySettings]] = StrategySettings
    State: ClassVar[type[ClusteredState]] = ClusteredState

    def __init__(
        self,
        config: RunConfig,
        fleet: Fleet,
        timeline: Timeline | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.config, self.fleet, self.timeline = config, fleet, timeline
        self.settings: Any = config.strategy
        self.callbacks = callbacks
        self.state = self.initial_state()
        self.record = RoundRecord(0)
        self._clock = VirtualClock(config.devices.open(config.seed, config.data_dir))
        self._malicious = malicious_clients(config.faults, config.clients, config.seed)
        self._drawn = Drawn({}, no_clusters())
        self._memories: dict[str, Memory] = {}
        self._check_groups()
        self._done = 0
        self.sums: Sums = {}
        self._later: list[Plan] = []
        self._withheld: Plan | None = None
        self._started = 0.0

    def _check_groups(self) -> None:
        """Refuse a selection or server optimiser that this method cannot use.

        Raises
        ------
        ConfigError
        """
        names, optimizer = self.config.names, self.config.server_optimizer
        average = not (optimizer.remembers or optimizer.by_loss)
        others = f"another one with strategy={names['strategy']}"
        require(
            average or not self.steps_itself,
            "server_optimizer",
            names["server_optimizer"],
            f"{others}, which has a step of its own",
        )
        # The loss is told by a client that trains the one model it receives.
        client = locate(self.settings.client)
        plain = client.fit.__qualname__ == "ClusteredClient.fit"
        fair = plain or client.tells_loss
        require(
            fair or not optimizer.by_loss,
            "server_optimizer",
            names["server_optimizer"],
            f"{others}, whose clients do not tell the loss of one received model",
        )
        represented = type(self).centre_distances is not (
            ClusteredStrategy.centre_distances
        )
        require(
            represented or not self.config.selection.by_distance,
            "selection",
            names["selection"],
            f"random or oort with strategy={names['strategy']}, which has no "
            "representations",
        )

    serves: ClassVar[str] = "each cluster's model"
    """What the server's models are to the clients: for whoever exports them."""

    keeps_back: ClassVar[str] = ""
    """Why they are not fit for use alone; empty if they are."""

    # The method: what a paper decides ------------------------------------------------

    def initial_state(self) -> Any:
        """Return the state before any client is known: one initial model."""
        return ClusteredState([], no_clusters(), [self.initial_model()])

    def question(self) -> dict[str, Scalar]:
        """Return what the hello asks of a client, beside its number of samples."""
        return {}

    def with_hello(self) -> list[Vector]:
        """Return the models that come with the hello, to be kept."""
        return []

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Take newcomers into the state, all into cluster 0."""
        self.join(newcomers, np.zeros(len(newcomers), np.int64))

    def check_report(self, phase: str, result: Result) -> None:
        """Raise `InvalidResultError` for a result that must not enter the state."""

    def plan_train(self, round: int) -> Plan:
        """Sample participants; each trains its cluster's model."""
        state = self.state
        tasks = [
            Task(state.clients[row], (int(state.clusters[row]),))
            for row in self.choose_participants(round)
        ]
        return Plan(tasks, state.models, {}, reply=(len(state.models[0]),))

    steps_itself: ClassVar[bool] = False
    """Whether the method's own way from results to models leaves no room for a server
    optimiser."""

    def absorb_train(self, round: int, results: list[Result]) -> None:
        """Average each cluster's results; a cluster without any keeps its model.

        If the plan has a `Fold`, the results come without arrays, and ``self.sums`` has
        what they were added up to: a large round is never held.
        """
        rows = self.rows(result.client for result in results)
        clusters = self.state.clusters[rows]
        for cluster in np.unique(clusters):
            members = [results[i] for i in np.flatnonzero(clusters == cluster)]
            models = self.state.models
            models[cluster] = self.next_model(models[cluster], members)

    def measure_train(self, results: list[Result]) -> None:
        """Note how far the participants' models are from their clusters' new ones."""
        state = self.state
        if not all(result.arrays for result in results):
            return
        clusters = state.clusters[self.rows(result.client for result in results)]
        gaps = discrepancies(results, clusters, state.models)
        measures = self.record.measures
        measures["discrepancy"] = float(np.mean(gaps)) if len(gaps) else None
        measures["discrepancies"] = [
            float(gaps[clusters == cluster].mean()) if cluster in clusters else None
            for cluster in range(len(state.models))
        ]

    def plan_evaluate(self, round: int, test: bool) -> Plan:
        """Let every client test the model it is served."""
        state = self.state
        if not test:
            return Plan([])
        pairs = zip(state.clients, state.clusters.tolist(), strict=True)
        return Plan([Task(client, (k,)) for client, k in pairs], state.models)

    def absorb_reports(self, round: int, results: list[Result]) -> None:
        """Take in what clients say about their data of the next round."""

    def centre_distances(self) -> FloatArray:
        """Return the distance of each client to its cluster's centre, shape (n,).

        Empty for a method without representations.
        """
        return np.zeros(0)

    def heterogeneity(self) -> float | None:
        """Return the mean client distance within clusters, if it is known."""
        return None

    # For methods ---------------------------------------------------------------------

    def join(self, newcomers: list[Result], clusters: IntArray) -> None:
        """Append newcomers to the state."""
        state = self.state
        state.clients = state.clients + [result.client for result in newcomers]
        state.clusters = np.append(state.clusters, clusters)

    def initial_model(self) -> Vector:
        """Return the common initial model of all clusters and clients."""
        dataset = self.config.dataset
        return initial_vector(
            self.config.model, dataset.shape, dataset.classes, self.config.seed
        )

    def hollow_network(self) -> nn.Module:
        """Return the run's network without weights, to look at its layers."""
        dataset = self.config.dataset
        return hollow_network(self.config.model, dataset.shape, dataset.classes)

    def rng(self, purpose: str, round: int) -> np.random.Generator:
        """Return the server's generator of a purpose and round."""
        return generator(self.config.seed, purpose, round)

    def choose_participants(self, round: int) -> list[int]:
        """Return the rows of at most M participants, from all or from each cluster.

        More than M with `devices.over_commitment`: the first M to finish are kept.
        """
        state, rng = self.state, self.rng("selection", round)
        pots, sizes = state.clusters, state.sizes
        if self.settings.sampling == "all":
            pots, sizes = np.zeros_like(pots), np.array([len(pots)])
        known = self.known(round)
        chosen: dict[int, int] = {}
        shares = share_participants(self.config.participants, sizes, rng)
        for pot, asked in enumerate(self.config.devices.over_commit(shares, sizes)):
            members = np.flatnonzero(pots == pot)
            found = self.config.selection.choose(members, asked, rng, known).tolist()
            chosen |= dict.fromkeys(found, pot)
        self._drawn = Drawn(
            {state.clients[row]: pot for row, pot in chosen.items()}, shares
        )
        return sorted(chosen)

    def known(self, round: int) -> Known:
        """Return what a selection can choose by."""
        history = self.state.history.extended(len(self.state.clients))
        by_distance = self.config.selection.by_distance
        gaps = self.centre_distances() if by_distance else np.zeros(0)
        return Known(round, history, gaps)

    def next_model(self, model: Vector, results: list[Result]) -> Vector:
        """Return a cluster's next model, through the server optimiser."""
        optimizer = self.config.server_optimizer
        if not isinstance(optimizer, QFedAvg):
            return self.step(model, self.average(results))
        arrays = [result.arrays[0] for result in results]
        losses = np.array([float(r.metrics["start_loss"]) for r in results])
        return optimizer.combine(model, arrays, losses, self.weights)

    def step(self, model: Vector, mean: Vector, absent: int = 0) -> Vector:
        """Return the server optimiser's step from a model to the mean of its results.

        What it remembers goes by the model's content: it stays with a model whose
        number changes, and a model that was made otherwise begins anew.

        Parameters
        ----------
        model, mean : Vector, shape (d,)
        absent : int
            Weights of the network that are not in the model: a personal classifier.
        """
        optimizer, memories = self.config.server_optimizer, self.state.memories
        if not optimizer.remembers:
            return mean
        memory = memories.get(digest(model), [])
        fresh, memory = optimizer.step(model, mean, self.weights - absent, memory)
        self._memories[digest(fresh)] = memory
        return fresh

    @cached_property
    def weights(self) -> int:
        """The number of the network's weights, without running statistics."""
        return sum(each.numel() for each in self.hollow_network().parameters())

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

    def ask(self, round: int, plan: Plan) -> list[Result]:
        """Ask clients something before a round's training, and wait for the answers.

        A device takes seconds for each message, so this is for what cannot go with the
        round's own ones. Large answers come in portions.
        """
        results: list[Result] = []
        for part in portions(plan) if plan.tasks else []:
            replies = self._exchange(self._send("query", part, round - 1))
            results += self._receive("query", replies).results
        self._wait()
        return results

    def screen(
        self, phase: str, results: list[Result], check: Callable[[Result], object]
    ) -> list[Result]:
        """Leave out, and count, results that a check refuses."""
        sound = []
        for result in results:
            try:
                check(result)
            except InvalidResultError as error:
                failure = Failure(result.client, phase, error.reason, error.detail)
                self.fleet.note(failure)
                self.record.failures.append(failure)
            else:
                sound.append(result)
        return sound

    def true_concepts(self, round: int) -> IntArray | None:
        """Return the true concept of each client of the state, where it is known."""
        if self.timeline is None:
            return None
        return self.timeline.concepts(round)[np.array(self.state.clients, np.int64)]

    # The frame: Flower's hooks -------------------------------------------------------

    def run(self, state: ClusteredState | None = None, done: int = 0) -> None:
        """Run all rounds, or those after a checkpoint.

        Parameters
        ----------
        state : ClusteredState, optional
            The state after ``done`` rounds.
        done : int
        """
        if state is not None:
            self.state, self._done = state, done
        self._started = time.perf_counter()
        remaining = self.config.rounds - self._done
        if remaining > 0:
            self.start(
                self.fleet.grid,
                ArrayRecord([self.initial_model()]),
                num_rounds=remaining,
                timeout=self.config.system.message_timeout,
            )
            self.fleet.grid.finish()

    def summary(self) -> None:
        """Say nothing: callbacks do."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Open a round: greet who is new, then send out the training tasks."""
        del arrays, config, grid
        round = self._done + server_round
        self.record = RoundRecord(round)
        self.record.virtual_seconds = 0.0 if self.fleet.simulated else None
        self._drawn = Drawn({}, no_clusters())
        self._greet(round)
        plan = self.plan_train(round)
        self.record.participants = len(plan.tasks)
        self.sums = {}
        if self.config.server_optimizer.by_loss or self.config.selection.learns:
            plan.config["start_loss"] = True
        self._withheld = plan if plan.fold and self._over_committed else None
        if self._withheld:
            # Who is among the first is known only when all have finished.
            plan = replace(plan, fold=None)
        parts = portions(plan, self.fleet.adders) if plan.fold else [plan]
        first, *self._later = parts
        return self._send("train", first)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Absorb the training results."""
        results = self._take_in(replies)
        for part in self._later:
            results += self._take_in(self._exchange(self._send("train", part)))
        if self.record.participants:
            self.require_any(results, "train")
        clients = [result.client for result in results]
        seconds = self._clock.seconds(clients)
        self._wait(clients)
        self._note_participants(results, seconds)
        self._memories = {}
        self.absorb_train(self.record.round, results)
        self.sums = {}
        self._forget()
        self.measure_train(results)
        return None, None

    def _note_participants(self, results: list[Result], seconds: FloatArray) -> None:
        """Note what selections know clients by."""
        if not self.config.selection.learns:
            return
        rows = self.rows(result.client for result in results)
        rms = [float(r.metrics.get("start_rms", 1.0)) for r in results]
        utilities = np.array(rms) * [result.num_examples for result in results]
        history = self.state.history.extended(len(self.state.clients))
        round = self.record.round
        self.state.history = history.noted(round, rows, utilities, seconds)

    def _forget(self) -> None:
        """Keep the optimiser's memories of models that there still are."""
        if not self.config.server_optimizer.remembers:
            return
        old = self.state.memories
        alive = {digest(model) for model in self.state.models} & set(old)
        self.state.memories = {name: old[name] for name in alive} | self._memories

    def _take_in(self, replies: Iterable[Message]) -> list[Result]:
        check = partial(self.check_report, "train")
        outcome = self._receive("train", replies)
        merge_sums(self.sums, outcome.sums)
        sound = self.screen("train", outcome.results, check)
        sound = self.screen("train", sound, self._check_start)
        return self._add_up(self.keep_first(sound))

    def _add_up(self, results: list[Result]) -> list[Result]:
        """Fold what only could be when it was known who counts."""
        plan = self._withheld
        if plan is None or plan.fold is None:
            return results
        fold, tasks = plan.fold, {task.client: task for task in plan.tasks}

        def add(result: Result) -> None:
            add_result(self.sums, tasks[result.client], result, fold)

        added = self.screen("train", results, add)
        return [replace(result, arrays=[]) for result in added]

    def _check_start(self, result: Result) -> None:
        """Refuse a result without the loss that it is weighed or selected by."""
        told = dict(result.metrics)
        if not self.config.server_optimizer.by_loss:
            told.setdefault("start_loss", 0.0)
        told.setdefault("start_rms", 1.0)
        for name in ("start_loss", "start_rms"):
            value = told.get(name)
            if not (isinstance(value, float) and 0 <= value < np.inf):
                detail = f"{name}={value!r}, not a number of at least 0"
                raise InvalidResultError("representation", detail)

    def keep_first(self, results: list[Result]) -> list[Result]:
        """Leave out who finished after as many as were wanted of each pot."""
        drawn = self._drawn
        if not (self._over_committed and self.fleet.simulated and drawn.pots):
            return results
        seconds = self._clock.seconds([result.client for result in results])
        pots = np.array([drawn.pots[result.client] for result in results], np.int64)
        kept = first_to_finish(seconds, pots, drawn.shares)
        self.record.measures["late"] = int(np.count_nonzero(~kept))
        return [result for result, first in zip(results, kept, strict=True) if first]

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Send out the tests, and the question whether the data changed."""
        del arrays, config, grid
        round = self.record.round
        every = self.config.system.evaluate_every
        test = round % every == 0 or round == self.config.rounds
        plan = self.plan_evaluate(round, test)
        plan.config["test"] = test
        return self._send("evaluate", plan)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Close a round: note the tests, absorb the reports, tell the callbacks."""
        outcome = self._receive("evaluate", replies)
        self._wait()
        tested = [result for result in outcome.results if result.num_examples]
        rows = self._note_tests(tested)
        self._note_clusters()
        check = partial(self.check_report, "evaluate")
        reports = self.screen("evaluate", outcome.results, check)
        self.absorb_reports(self.record.round, reports)
        now = time.perf_counter()
        self.record.seconds, self._started = round(now - self._started, 4), now
        # Files are written while the clients train; results change the state later.
        self.fleet.grid.meanwhile(partial(self._tell, self.record, rows))
        return None

    def _tell(self, record: RoundRecord, rows: list[ClientRow]) -> None:
        for callback in self.callbacks:
            callback.on_round(record, rows, self.state)

    def _greet(self, round: int) -> None:
        """Ask every client that is not in the state yet for its sizes."""
        if strangers := self.find_strangers():
            self.let_in(round, self.ask(round, self.hello(strangers)))
        for client in self.fleet.disputes.keys() - set(self.state.clients):
            detail = self.fleet.disputes[client]
            self.record.failures.append(Failure(client, "query", "node", detail))
        self.require_any(self.state.clients, "query")

    def find_strangers(self) -> list[ClientId]:
        """Return the clients that are there and not in the state."""
        self.fleet.discover()
        known = set(self.state.clients)
        return [client for client in self.fleet.clients if client not in known]

    def hello(self, strangers: Sequence[ClientId]) -> Plan:
        """Return what clients are asked before they are known."""
        models = self.with_hello()
        tasks = [Task(client, tuple(range(len(models)))) for client in strangers]
        return Plan(tasks, models, self.question())

    def let_in(self, round: int, answers: list[Result]) -> None:
        """Welcome those whose answer to the hello is sound."""
        check = partial(self.check_report, "query")
        if newcomers := self.screen("query", answers, check):
            self.welcome(round, newcomers)

    def _send(self, phase: str, plan: Plan, round: int | None = None) -> list[Message]:
        number = self.record.round if round is None else round
        every = self.config.system.checkpoint_every
        plan.config["keep_from"] = (self.record.round - 1) // every * every
        return self.fleet.messages(phase, number, plan)

    def _exchange(self, messages: list[Message]) -> Iterable[Message]:
        timeout = self.config.system.message_timeout
        return self.fleet.grid.send_and_receive(messages, timeout=timeout)

    def _receive(self, phase: str, replies: Iterable[Message]) -> Outcome:
        """Collect a phase; without any valid result of a train or test, end the run."""
        outcome, record = self.fleet.collect(phase, replies), self.record
        record.failures.extend(outcome.failures)
        record.bytes_up += outcome.bytes_up
        # A model sent only to be tested is part of the measurement.
        record.bytes_down += outcome.bytes_down if phase != "evaluate" else 0
        if outcome.failures and phase == "evaluate":
            self.require_any(outcome.results, phase)
        if self.fleet.simulated:
            self._clock.note(outcome)
        return outcome

    def _wait(self, clients: Iterable[ClientId] | None = None) -> None:
        """Let virtual time pass until the slowest of some, or of all, is done."""
        longest = self._clock.wait(clients)
        if self.record.virtual_seconds is not None:
            self.record.virtual_seconds += longest

    @property
    def _over_committed(self) -> bool:
        over_commitment: float = self.config.devices.over_commitment
        return over_commitment > 1

    def require_any(self, valid: Sequence[object], phase: str) -> None:
        """End the run if nothing is valid.

        Raises
        ------
        NoValidResultError
        """
        if valid:
            return
        failures = [f for f in self.record.failures if f.phase == phase]
        reasons = [f"client {f.client}: {f.reason}: {f.detail}" for f in failures]
        raise NoValidResultError(
            f"round {self.record.round}: none of {len(failures)} clients gave a valid "
            f"{phase} result; {(reasons or ['nobody has samples'])[0]}; "
            "mend the clients and add resume=true"
        )

    def _note_tests(self, tested: list[Result]) -> list[ClientRow]:
        """Note the tests in the round's record; return a row for each."""
        rows = self.rows(result.client for result in tested)
        return note_tests(
            self.record, tested, self.state.clusters[rows], self._malicious
        )

    def _note_clusters(self) -> None:
        record, state = self.record, self.state
        record.cluster_sizes = state.sizes.tolist()
        record.num_clusters = int(np.count_nonzero(state.sizes))
        record.heterogeneity = self.heterogeneity()
        truth = self.true_concepts(record.round)
        if truth is not None:
            record.ari = float(adjusted_rand_score(truth, state.clusters))

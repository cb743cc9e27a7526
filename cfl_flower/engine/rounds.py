"""The frame that every synchronous method stands in.

`ClusteredStrategy` is a `Method` and a Flower strategy: it turns a method's plans into
Messages and replies into results, and Flower's own `start` drives it. So a file beside
this one holds a paper and no plumbing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from cfl_flower.client.attacks import malicious_clients
from cfl_flower.clustering.representations import digest
from cfl_flower.communication.fleet import Fleet
from cfl_flower.communication.partial_sums import (
    PartialSums,
    add_result,
    merge_sums,
    portions,
)
from cfl_flower.communication.results import Results
from cfl_flower.communication.validation import is_bounded
from cfl_flower.engine.confidential import ConfidentialTraining
from cfl_flower.engine.method import Description, Method, Published, Supports
from cfl_flower.engine.privacy_budget import Disclosure
from cfl_flower.environment.machine import return_free_memory
from cfl_flower.errors import InvalidResultError, NoValidResultError
from cfl_flower.runs.asked import Asked
from cfl_flower.runs.callbacks import Callback
from cfl_flower.runs.measures import (
    note_class_agreement,
    note_discrepancies,
    note_tests,
)
from cfl_flower.runs.record import ClientRow, RoundRecord
from cfl_flower.simulated_devices import VirtualClock, first_to_finish
from cfl_flower.state import ClusteredState, StrategySettings, no_clusters
from cfl_flower.types import ClientId, Failure, FloatArray, Plan, Result

if TYPE_CHECKING:
    from cfl_flower.config.compose import RunConfig
    from cfl_flower.data.worlds.timeline import Timeline

__all__ = [
    "ClusteredState",
    "ClusteredStrategy",
    "Description",
    "Disclosure",
    "Published",
    "StrategySettings",
    "Supports",
    "no_clusters",
]
"""What the file of a method begins with."""

Reader: TypeAlias = Callable[[Result], Result]


class ClusteredStrategy(Method, Strategy):
    """A method as a Flower strategy."""

    def __init__(
        self,
        config: RunConfig,
        fleet: Fleet,
        timeline: Timeline | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        super().__init__(config, timeline)
        self.fleet = fleet
        self.callbacks = callbacks
        self._clock = VirtualClock(config.devices.open(config.seed, config.data_dir))
        self._malicious = malicious_clients(config.faults, config.clients, config.seed)
        self._done = 0
        self._later: list[Plan] = []
        self._asked: set[ClientId] = set()
        self._heard: set[ClientId] = set()
        if self._guard and not fleet.simulated:
            self._guard.asked = Asked(Path(config.output_dir), config.resume)
        self._late: dict[ClientId, float] = {}
        self._withheld: Plan | None = None
        self._confidential = ConfidentialTraining(fleet, self._guard, self._sums)
        self._started = 0.0

    # For methods ---------------------------------------------------------------------

    def ask(self, server_round: int, plan: Plan) -> list[Result]:
        """Ask clients something before a round's training, and wait for the answers.

        A device takes seconds for each message: ask what cannot go with the round's
        own. Large answers come in portions. The callbacks of the last round are done
        when this returns.
        """
        return [each for part in self.ask_in_parts(server_round, plan) for each in part]

    def ask_in_parts(self, server_round: int, plan: Plan) -> Iterator[list[Result]]:
        """Ask as `ask` does, and yield the answers portion by portion.

        Those of a portion need not be kept until the next one comes.
        """
        parts = portions(plan, shared=self._shared_memory) if plan.tasks else []
        for part in parts:
            part.config["keep_from"] = self.keep_from
            asked = self._reached(task.client for task in part.tasks)
            if self._guard:
                self._guard.will_ask("query", server_round, asked)
            messages = self.fleet.messages("query", server_round - 1, part)
            answers = self.fleet.collect("query", self._exchange(messages))
            self._note_traffic("query", answers)
            if self._guard:
                loss = self.state.privacy
                self._heard |= self._guard.count_reports(answers, loss, asked)
            # All messages of the last round are done with before the state changes.
            self.fleet.grid.finish()
            yield answers
            if len(parts) > 1:
                return_free_memory()
        self.fleet.grid.finish()
        self._advance_clock()

    def screen(
        self, phase: str, results: Iterable[Result], read: Reader | None = None
    ) -> list[Result]:
        """Return results as read; leave out, and count, those that are refused."""
        read = read or partial(self.read_result, phase)
        sound = []
        for result in results:
            try:
                sound.append(read(result))
            except InvalidResultError as error:
                failure = self.fleet.fail(result.client, phase, error)
                self.record.failures.append(failure)
        return sound

    # The frame: Flower's hooks -------------------------------------------------------

    def run(self, state: ClusteredState | None = None, done: int = 0) -> None:
        """Run all rounds, or go on from the state after ``done`` rounds."""
        if state is not None:
            self.state = state
            self._done = done
        self._started = time.perf_counter()
        remaining = self.config.rounds - self._done
        if remaining > 0:
            arrays = ArrayRecord([self.initial_model()])
            timeout = self.config.system.message_timeout
            self.start(cast(Grid, self.fleet.grid), arrays, remaining, timeout)
            self.fleet.grid.finish()

    def summary(self) -> None:
        """Say nothing: callbacks do."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Open a round: meet newcomers, then send out the training tasks."""
        server_round = self._done + server_round
        self.record = RoundRecord(server_round)
        self.record.virtual_seconds = 0.0 if self.fleet.simulated else None
        self._strata = {}
        self._meet_newcomers(server_round)
        if self._guard:
            self._guard.count_forgotten(
                "query", server_round, self._heard, self.state.privacy
            )
            self._heard = set()
            self._guard.require_able(
                server_round, self.state.privacy, self.state.clients
            )
        plan = self.plan_train(server_round)
        plan = self._confidential.plan(plan, self.record, self.state.privacy)
        self.record.participants = len(plan.tasks)
        self._late = {}
        # Losses that participants are weighted or selected by.
        if self.config.server_optimizer.by_loss:
            plan.config["start_loss"] = True
        if self.config.selection.learns:
            plan.config["start_rms"] = True
        plan.config["keep_from"] = self.keep_from
        self._withheld = plan if plan.sum_spec and self._over_committed else None
        if self._withheld:
            # Who is among the first is known only when all have finished.
            plan = replace(plan, sum_spec=None)
        parts = [plan]
        # Not of whom some are late, nor of devices, which would wait for each other;
        # but of what is summed, as the server could not hold all.
        if not self._over_committed and (plan.sum_spec or self.fleet.simulated):
            parts = portions(plan, self.fleet.summing_nodes, self._shared_memory)
        first, *self._later = parts
        return self.fleet.messages("train", server_round, first)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Absorb the training results."""
        results = self._receive_trained(replies)
        for later in self._exchange_later("train"):
            more = self._receive_trained(later)
            results.extend(more)
            merge_sums(results.sums, more.sums)
            results.shares |= more.shares
        loss = self.state.privacy
        self._confidential.receive(results, self.record, loss, self._ask_senders)
        # A cluster that lost too many devices costs itself the round, not the run.
        if self.record.participants and not self._sums:
            self.require_any(results, "train")
        clients = [result.client for result in results]
        seconds = self._clock.seconds(clients)
        self._advance_clock(clients)
        self._note_participants(results, seconds)
        self._memories = {}
        if results or not self._sums:
            self.absorb_train(self.record.round, results)
        self._keep_memories()
        comparable = self.describe().comparable and not self._confidential
        if comparable and all(result.arrays for result in results):
            rows = self.rows(clients)
            clusters = self.state.clusters[rows]
            models = self.state.models
            note_discrepancies(self.record, results, clusters, models)
        return None, None

    def _ask_senders(self, plan: Plan) -> list[Result]:
        """Ask those whose results are in masked sums what a plan says."""
        messages = self.fleet.messages("query", self.record.round, plan)
        answers = self.fleet.collect("query", self._exchange(messages))
        self._note_traffic("query", answers)
        return answers

    def _note_participants(self, results: list[Result], seconds: FloatArray) -> None:
        """Note what selections know clients by, of those who were late as well."""
        if not self.config.selection.learns or not results:
            return
        history = self.state.history.extended(len(self.state.clients))
        rows = self.rows(result.client for result in results)
        server_round = self.record.round
        rms = np.array([float(result.telemetry["start_rms"]) for result in results])
        local = self.settings.local
        seen = np.array([result.num_examples for result in results])
        if local.steps is not None:
            # As FedScale: a client is useful for the samples that it can train on.
            seen = np.minimum(seen, local.steps * local.batch_size)
        utilities = rms * seen
        history = history.noted(server_round, rows, utilities, seconds)
        if late := self._late:
            rows = self.rows(late)
            slow = np.array(list(late.values()))
            history = history.noted_late(
                server_round, rows, slow, float(utilities.mean())
            )
        self.state.history = history

    def _keep_memories(self) -> None:
        """Keep the optimiser's memories of models that there still are."""
        if not self.config.server_optimizer.remembers:
            return
        old = self.state.memories
        alive = {digest(model) for model in self.state.models} & set(old)
        self.state.memories = {name: old[name] for name in alive} | self._memories

    def _receive_trained(self, replies: Iterable[Message]) -> Results:
        results = self.fleet.collect("train", replies)
        self._note_traffic("train", results)
        results[:] = self.screen("train", results)
        if self._over_committed and self.fleet.simulated and self._strata:
            results[:] = self._keep_first(results)
        if self._withheld:
            results[:] = self._add_up(self._withheld, results, results.sums)
        return results

    def _add_up(
        self, plan: Plan, results: list[Result], sums: PartialSums
    ) -> list[Result]:
        """Add up what could only be once it was known who counts."""
        tasks = {task.client: task for task in plan.tasks}
        spec = plan.sum_spec
        assert spec is not None

        def add(result: Result) -> Result:
            add_result(sums, tasks[result.client], result, spec)
            return replace(result, arrays=[])

        return self.screen("train", results, add)

    def _keep_first(self, results: list[Result]) -> list[Result]:
        """Leave out who finished after as many as were wanted of each stratum."""
        seconds = self._clock.seconds([result.client for result in results])
        strata = np.array([self._strata[result.client] for result in results], np.int64)
        kept = first_to_finish(seconds, strata, self._shares)
        rows = list(zip(results, seconds.tolist(), kept, strict=True))
        self._late = {each.client: taken for each, taken, first in rows if not first}
        self.record.measures["late"] = len(self._late)
        return [each for each, _, first in rows if first]

    def _reached(self, clients: Iterable[ClientId]) -> set[ClientId]:
        """Return those of some clients to whom a message can be sent."""
        fleet = self.fleet
        return {c for c in clients if fleet.simulated or fleet.host(c) is not None}

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Send out the tests, and the question whether the data changed."""
        server_round = self.record.round
        every = self.config.system.evaluate_every
        test = server_round % every == 0 or server_round == self.config.rounds
        plan = self.plan_evaluate(server_round, test)
        if self._guard:
            plan = self._guard.plan_tests(plan, self.state.privacy)
        # What is not accounted for is not told where an account is kept.
        tell = self._guard is None
        plan.config.update(test=test, keep_from=self.keep_from, tell_empty=tell)
        self._asked = self._reached(
            task.client
            for task in plan.tasks
            if {**plan.config, **task.config}.get("representation")
        )
        if self._guard:
            self._guard.will_ask("evaluate", server_round, self._asked)
        parts = [plan]
        if self.fleet.simulated:
            parts = portions(plan, shared=self._shared_memory, by_model=True)
        first, *self._later = parts
        return self.fleet.messages("evaluate", server_round, first)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Close a round: note the tests, absorb the reports, tell the callbacks."""
        results = self.fleet.collect("evaluate", replies)
        for later in self._exchange_later("evaluate"):
            results.add(self.fleet.collect("evaluate", later))
        self._note_traffic("evaluate", results)
        self._advance_clock()
        if self._guard:
            loss = self.state.privacy
            heard = self._guard.count_reports(results, loss, self._asked)
            self._guard.count_forgotten("evaluate", self.record.round, heard, loss)
        rows = self._note_tests([result for result in results if result.num_examples])
        self._note_clusters()
        self._note_empty(results)
        results[:] = self.screen("evaluate", results)
        self.absorb_evaluate(self.record.round, results)
        if self._guard:
            state = self.state
            self._guard.note(self.record, rows, state.privacy, state.clients)
        now = time.perf_counter()
        self.record.seconds = round(now - self._started, 4)
        self._started = now
        # Files are written while the clients train; results change the state later.
        self.fleet.grid.meanwhile(partial(self._run_callbacks, self.record, rows))
        return None

    def _run_callbacks(self, record: RoundRecord, rows: list[ClientRow]) -> None:
        for callback in self.callbacks:
            callback(record, rows, self.state)

    def _meet_newcomers(self, server_round: int) -> None:
        """Ask every client that is not in the state yet for its sizes."""
        if newcomers := self.find_newcomers():
            answers = self.ask(server_round, self.hello(newcomers))
            self._welcome(server_round, self.admissible(answers))
        for client in self.fleet.disputes.keys() - set(self.state.clients):
            detail = self.fleet.disputes[client]
            self.record.failures.append(Failure(client, "query", "node", detail))
        self.require_any(self.state.clients, "query")

    def admissible(self, answers: list[Result]) -> list[Result]:
        """Return the answers to a hello of those who have samples.

        Who has none is in no cluster, is not drawn and not tested, and is asked again
        before the next round.
        """
        return [answer for answer in answers if answer.num_examples]

    def find_newcomers(self) -> list[ClientId]:
        """Return the clients that are there and not in the state."""
        self.fleet.discover()
        known = set(self.state.clients)
        return [client for client in self.fleet.clients if client not in known]

    def _welcome(self, server_round: int, answers: list[Result]) -> None:
        """Welcome those whose answer to the hello is sound."""
        if newcomers := self.screen("query", answers):
            self.welcome(server_round, newcomers)

    @property
    def keep_from(self) -> int:
        """The round of a checkpoint on disk: what clients remembered then must stay.

        That of the round before is only written while this one's messages are answered,
        or never, if the server dies.
        """
        every: int = self.config.system.checkpoint_every
        return max(self._done, (self.record.round - 2) // every * every)

    def _exchange_later(self, phase: str) -> Iterator[Iterable[Message]]:
        """Yield the replies to each of the later parts of a phase's plan."""
        while self._later:
            # Out of the list: a plan holds models that will have been replaced.
            part = self._later.pop(0)
            yield self._exchange(self.fleet.messages(phase, self.record.round, part))
            return_free_memory()

    def _exchange(self, messages: list[Message]) -> Iterable[Message]:
        timeout = self.config.system.message_timeout
        return self.fleet.grid.send_and_receive(messages, timeout=timeout)

    def _note_traffic(self, phase: str, results: Results) -> None:
        """Note failures, bytes and time; end the run if no test gave a result."""
        record = self.record
        record.failures.extend(results.failures)
        record.bytes_up += results.bytes_up
        # A model sent only to be tested is part of the measurement.
        record.bytes_down += results.bytes_down if phase != "evaluate" else 0
        if results.failures and phase == "evaluate":
            self.require_any(results, phase)
        if self.fleet.simulated:
            self._clock.note(results, results.traffic)

    def _advance_clock(self, clients: Iterable[ClientId] | None = None) -> None:
        """Let virtual time pass until the slowest of some, or of all, is done."""
        longest = self._clock.wait(clients)
        if self.record.virtual_seconds is not None:
            self.record.virtual_seconds += longest

    @property
    def _shared_memory(self) -> bool:
        """Whether server and clients are one process."""
        return bool(self.config.engine == "inprocess")

    @property
    def _over_committed(self) -> bool:
        over_commitment: float = self.config.devices.over_commitment
        return over_commitment > 1

    def require_any(self, valid: Sequence[object], phase: str) -> None:
        """Raise `NoValidResultError`, which ends the run, if nothing is valid."""
        if valid:
            return
        failures = [f for f in self.record.failures if f.phase == phase]
        reasons = [f"client {f.client}: {f.reason}: {f.detail}" for f in failures]
        remedy = "mend the clients and add resume=true"
        if failures and all(f.reason == "count" for f in failures):
            remedy = (
                "they have too few samples in this round: see simulations.preview, and "
                "take another partition or drift (with drift=timestamps a longer "
                "drift.window or fewer drift.periods)"
            )
        if not all(map(is_bounded, self.state.models)):
            remedy = (
                "what they received is not finite itself, or huge: training diverged, "
                "so take smaller learning rates (strategy.local.learning_rate, or the "
                "server's own) in a new output_dir"
            )
        raise NoValidResultError(
            f"round {self.record.round}: none of {len(failures)} clients gave a valid "
            f"{phase} result; {(reasons or ['nobody has samples'])[0]}; {remedy}"
        )

    def _note_tests(self, tested: list[Result]) -> list[ClientRow]:
        """Note the tests in the round's record; return a row for each."""
        clusters = self.state.clusters[self.rows(result.client for result in tested)]
        return note_tests(self.record, tested, clusters, self._malicious)

    def _note_empty(self, results: Sequence[Result]) -> None:
        """Note who has no samples in the next round, of those who answer."""
        told = {result.client: bool(result.metrics.get("empty")) for result in results}
        before = set(self.state.empty)
        state = self.state
        state.empty = [c for c in state.clients if told.get(c, c in before)]

    def _note_clusters(self) -> None:
        from sklearn.metrics import adjusted_rand_score

        record = self.record
        state = self.state
        described = self.describe()
        record.cluster_sizes = state.sizes.tolist()
        record.num_clusters = int(np.count_nonzero(state.sizes))
        record.heterogeneity = described.heterogeneity
        if self.timeline is None:
            return
        meanings = self.timeline.world(record.round).meanings
        clients, clusters = described.class_clusters or (state.clients, None)
        if clusters is None:
            truth = self.true_concepts(record.round)
            if self.timeline.has_concepts:
                record.ari = float(adjusted_rand_score(truth, state.clusters))
            shape = len(clients), meanings.shape[1]
            clusters = np.broadcast_to(state.clusters[:, None], shape)
        # Clusters of whole clients are compared where any class has several meanings.
        if described.class_clusters or meanings.any():
            known = np.array(clients, np.int64)
            note_class_agreement(record, meanings, known, clusters)

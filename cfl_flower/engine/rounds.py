"""The rounds of a synchronous method, from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from flwr.app import ArrayRecord, Message, MetricRecord

from cfl_flower.client.attacks import malicious_clients
from cfl_flower.client.requests import EvaluateRequest
from cfl_flower.communication.fleet import Fleet
from cfl_flower.communication.portions import portions
from cfl_flower.communication.results import Results
from cfl_flower.data.worlds.timeline import Timeline
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.declarations import check_plan, with_more
from cfl_flower.engine.delivery import Delivery
from cfl_flower.engine.participants import Participants
from cfl_flower.engine.round_measures import (
    note_clusters,
    note_empty,
    note_training,
)
from cfl_flower.engine.services import RunServices
from cfl_flower.engine.stages import STAGES
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.engine.steps import Steps
from cfl_flower.environment.machine import return_free_memory
from cfl_flower.learning.outcomes import COUNTED
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.callbacks import Callback
from cfl_flower.runs.measures import note_measures, note_tests
from cfl_flower.runs.record import ClientRow
from cfl_flower.state import ClusteredState
from cfl_flower.types import ClientId, Failure, Plan, Result, Scalar

STEPS = {
    "query": "hello, or what run.ask was given,",
    "train": "plan_train",
    "evaluate": "plan_evaluate",
}
"""The steps of a method that return plans, by phase."""


class Rounds:
    """Carries out a method: who takes part, what is sent, what comes of the results."""

    kind_of_services: ClassVar[type[RunServices]] = RunServices

    def __init__(
        self,
        method: Any,
        config: RunConfig,
        fleet: Fleet,
        timeline: Timeline | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.method = method
        self.config = config
        self.fleet = fleet
        self.callbacks = callbacks
        self.context = RoundContext(method, config, fleet, timeline)
        self.steps = Steps(self.context)
        self.delivery = Delivery(self.context)
        self.participants = Participants(self.context)
        self._malicious = malicious_clients(config.faults, config.clients, config.seed)
        self.services = self.kind_of_services(
            self.context, self.participants, self.delivery, self.ask_in_parts
        )
        self.stages = [
            stage(self.context, self.participants, self.delivery)
            for stage in STAGES
            if stage.applies(config, fleet.simulated)
        ]
        # The plan that each stage of the phase received, from the first to the last.
        self._passed: list[tuple[Stage, Plan]] = []
        self._started = 0.0

    def run(self, state: ClusteredState | None = None, done: int = 0) -> None:
        """Run all rounds, or go on from the state after ``done`` rounds."""
        if state is not None:
            self.method.state = state
            self.context.done = done
        self._started = time.perf_counter()
        remaining = self.config.rounds - self.context.done
        if remaining > 0:
            try:
                self.start(remaining, self.config.system.message_timeout)
            finally:
                # The round that is done is saved, however the next one ends.
                self.fleet.grid.finish()

    def start(self, num_rounds: int, timeout: float) -> None:
        """Let Flower's loop call the hooks below."""
        arrays = ArrayRecord([self.services.initial_model()])
        self.method.start(self.fleet.grid, arrays, num_rounds, timeout)
        self.steps.end()

    # A round -------------------------------------------------------------------------

    def configure_train(self, server_round: int) -> list[Message]:
        """Open a round: meet newcomers, then send out the training tasks."""
        context = self.context
        context.begin(context.done + server_round)
        self.participants.forget()
        # Step 1: clients that are new say who they are, and the method places them.
        self.meet_newcomers()
        for stage in self.stages:
            stage.open()
        # Step 2: the method decides who trains which model.
        plan = self.pass_out("train", self.steps.plan_train())
        context.record.participants = len(plan.tasks)
        return self.delivery.send("train", plan)

    def aggregate_train(self, replies: Iterable[Message]) -> tuple[None, None]:
        """Take in the training results."""
        context = self.context
        results = self.pass_back(self.delivery.receive("train", replies))
        expected = all(stage.expects_results for stage in self.stages)
        if expected and context.record.participants:
            self.delivery.require_any(results, "train")
        context.advance_clock([result.client for result in results])
        # Step 3: the method computes the next models.
        self.services.begin_steps()
        if results:
            self.steps.absorb_train(results)
        self.services.keep_memories()
        if all(stage.shows_models for stage in self.stages):
            note_training(context, results)
        return None, None

    def configure_evaluate(self) -> list[Message]:
        """Send out the tests, and the question whether the data changed."""
        number = self.context.number
        every = self.config.system.evaluate_every
        test = number % every == 0 or number == self.config.rounds
        counted = set(COUNTED).intersection(self.config.metrics)
        among = self.method.unlabelled_choice() if test else []
        asked = EvaluateRequest(
            test,
            report_empty=all(stage.asks_who_is_empty for stage in self.stages),
            outcomes=self.config.dataset.classes if counted else 0,
            ahead=self.config.evaluation == "prequential",
            candidates=len(among),
        )
        # Step 4: clients test, and say whether their data of the next round changed.
        tests = with_more(self.steps.plan_evaluate(test), among)
        plan = self.pass_out("evaluate", tests, asked.to_config())
        return self.delivery.send("evaluate", plan)

    def aggregate_evaluate(self, replies: Iterable[Message]) -> MetricRecord | None:
        """Close a round: note the tests, take in the reports, run the callbacks."""
        context = self.context
        results = self.delivery.receive("evaluate", replies)
        if any(failure.phase == "evaluate" for failure in context.record.failures):
            self.delivery.require_any(results, "evaluate")
        context.advance_clock()
        results = self.pass_back(results)
        rows = self.note_tests(results)
        note_clusters(context)
        note_empty(context.state, results)
        read = self.delivery.read("evaluate", results)
        # Step 5: the method takes in these reports, and may cluster anew.
        self.steps.absorb_evaluate(results.with_results(read))
        for stage in self.stages:
            stage.close(rows)
        ended = time.perf_counter()
        context.record.seconds = round(ended - self._started, 4)
        self._started = ended
        # Files are written while the clients of the next round train.
        record = context.record
        now = context.state.snapshot()

        def save() -> None:
            for callback in self.callbacks:
                callback(record, rows, now)

        self.fleet.grid.meanwhile(save)
        return None

    # The stages ----------------------------------------------------------------------

    def pass_out(
        self, phase: str, plan: Plan, asked: Mapping[str, Scalar] | None = None
    ) -> Plan:
        """Return what the stages make of a plan, from the first to the last.

        ``asked`` is what the engine asks all clients beside the method.
        """
        context = self.context
        context.phase = phase
        known = None if phase == "query" else set(context.state.clients)
        plan = check_plan(plan, STEPS[phase], known)
        plan = replace(plan, config={**plan.config, **(asked or {})})
        self._passed = []
        stages = [stage for stage in self.stages if phase in stage.phases]
        for stage in stages:
            self._passed.append((stage, plan))
            plan = stage.plan(plan)
        context.sent = replace(plan, keep_from=context.keep_from)
        for stage in stages:
            stage.send(context.sent)
        return context.sent

    def pass_back(self, results: Results) -> Results:
        """Return what the stages make of results, from the last to the first."""
        for stage, plan in reversed(self._passed):
            results = stage.receive(plan, results)
        # Free the plans: they hold models that the method is about to replace.
        self._passed = []
        self.context.sent = Plan([])
        return results

    def ask_in_parts(self, server_round: int, plan: Plan) -> Iterator[Results]:
        """Ask clients before a round's training; yield the answers by portions."""
        shared = self.context.shares_memory
        parts = portions(plan, shared=shared) if plan.tasks else []
        for part in parts:
            asked = self.pass_out("query", part)
            answers = self.delivery.query(server_round, asked)
            answers = self.pass_back(answers)
            # All messages of the last round are done with before the state changes.
            self.fleet.grid.finish()
            yield answers
            if len(parts) > 1:
                return_free_memory()
        self.fleet.grid.finish()
        self.context.advance_clock()

    # Newcomers -----------------------------------------------------------------------

    def meet_newcomers(self) -> None:
        """Ask every client that is not in the state yet for its sizes."""
        context = self.context
        if newcomers := self.find_newcomers():
            parts = self.ask_in_parts(context.number, self.method.hello(newcomers))
            self.welcome(self.admissible([each for part in parts for each in part]))
        for client in self.fleet.disputes.keys() - set(context.state.clients):
            detail = self.fleet.disputes[client]
            context.record.failures.append(Failure(client, "query", "node", detail))
        self.delivery.require_any(context.state.clients, "query")

    def find_newcomers(self) -> list[ClientId]:
        """Return the clients that are there and not in the state."""
        self.fleet.discover()
        known = set(self.context.state.clients)
        return [client for client in self.fleet.clients if client not in known]

    def admissible(self, answers: list[Result]) -> list[Result]:
        """Return the answers to a hello of those who have samples.

        Who has none is in no cluster, is not drawn and not tested, and is asked again
        before the next round.
        """
        return [answer for answer in answers if answer.num_examples]

    def welcome(self, answers: list[Result]) -> None:
        """Welcome those whose answer to the hello is valid."""
        if newcomers := self.delivery.read("query", answers):
            self.steps.welcome(newcomers)

    # The end of a round --------------------------------------------------------------

    def note_tests(self, results: Results) -> list[ClientRow]:
        """Note the tests of a round; return a row for each."""
        config = self.config
        context = self.context
        tested = [result for result in results if result.num_examples]
        places = context.state.rows(result.client for result in tested)
        clusters = context.state.clusters[places]
        cap = config.cap_of_tests
        rows = note_tests(context.record, tested, clusters, self._malicious, cap)
        classes = config.dataset.classes
        return note_measures(context.record, tested, rows, config.metrics, classes, cap)

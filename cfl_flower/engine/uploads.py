"""The event loop of an asynchronous method: uploads are taken in one by one.

Every client has one task under way; its answer, an upload, changes the state and is
replied to at once. In a simulation tasks are computed ahead, on all workers, but
uploads are taken in strictly in the order of a virtual clock, so a run is
deterministic. Real devices decide when they upload.

A round is as many valid uploads as there are ``participants``. After a round the
simulated clients test the models that they hold; real devices test theirs when they
upload next.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cfl_flower.communication.asynchronous import give_up, look, send, wait
from cfl_flower.communication.results import Results, payload_bytes
from cfl_flower.engine.exchanges import Exchanges
from cfl_flower.engine.rounds import Rounds
from cfl_flower.engine.turns import Turns
from cfl_flower.engine.uploads_state import (
    AsynchronousSettings,
    AsynchronousState,
)
from cfl_flower.errors import NoValidResultError
from cfl_flower.runs.record import ClientRow
from cfl_flower.types import (
    ClientId,
    Failure,
    Result,
    Vector,
)

LOOK_AROUND = 10.0
"""Seconds between two looks for new devices."""


class Uploads(Rounds):
    """Carries out an asynchronous method: an event loop over uploads."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.settings: AsynchronousSettings = self.config.strategy
        self._turns = Turns(self.context)
        self.exchanges = Exchanges(self.method, self.context, self.delivery)
        self._since = time.monotonic()
        self._looked = self._since
        self._left = 0

    # In place of Flower's loop -------------------------------------------------------

    def start(self, num_rounds: int, timeout: float) -> None:
        """Take in uploads, as many in each round as there are participants."""
        self._left = num_rounds * self.config.participants
        done = self.context.done
        for server_round in range(done + 1, done + num_rounds + 1):
            self._open_round(server_round)
            began = self.method.state.now
            self._take_all(timeout)
            if self.settings.arrival == "devices" or not self.fleet.simulated:
                passed = self.method.state.now - began
                self.context.record.virtual_seconds = float(np.round(passed, 4))
            noted = [each for _, each in self.exchanges.noted]
            self.method.describe_round(noted)
            self._test_all(timeout)

    def _take_all(self, timeout: float) -> None:
        """Take in the uploads of a round, as many valid ones as are wanted."""
        valid = 0
        while valid < self.config.participants:
            answer = self._next(timeout)
            taken = self.exchanges.take(answer)
            self._turns.note(answer.client, taken)
            self._left -= taken
            valid += taken
            # Every client that is there fails again and again.
            if self._turns.hopeless():
                self.delivery.require_any([], "train")
        self.context.record.participants = self._turns.taken.total()

    def _test_all(self, timeout: float) -> None:
        """Close a round: test, when nobody trains, and run the callbacks."""
        if self.fleet.simulated:
            while self.fleet.outstanding.clients or self._waiting():
                self._pump(timeout)
            if not self._left:
                # A longer run draws more changes of the data than this shorter one.
                self.method.state.answers.clear()
        messages = self.configure_evaluate()
        replies = self.delivery.exchange(messages) if messages else []
        self.aggregate_evaluate(replies)

    def _open_round(self, server_round: int) -> None:
        self.context.begin(server_round)
        self.context.record.virtual_seconds = None
        self.context.record.participants = self.config.participants
        self.exchanges.begin()
        self._turns.taken.clear()
        # The files of the last round, before the state changes.
        self.fleet.grid.finish()
        self.meet_newcomers()
        self._pump(None)

    def _next(self, timeout: float) -> Result | Failure:
        """Wait for the next upload."""
        state: AsynchronousState = self.method.state
        answers = state.answers
        self._pump(None)
        if self.fleet.simulated:
            row = self._turns.by_urgency(state)[0]
            while state.clients[row] not in answers:
                self._pump(timeout)
            # Whoever waited for the turns of others was due before.
            state.now = max(state.now, float(state.due[row]))
            return answers.pop(state.clients[row])
        # A device that holds its upload is not late, as long as its policy allows it.
        patience = timeout + self.settings.policy.longest if timeout else math.inf
        began = time.monotonic()
        interval = min(LOOK_AROUND, timeout) or LOOK_AROUND
        # However busy the server is: who left, and who is new.
        if began - self._looked >= interval:
            self._look_around(patience)
        while not answers:
            self._pump(interval)
            self._look_around(patience)
            if time.monotonic() - began > patience:
                raise NoValidResultError(
                    f"round {self.context.number}: no client uploaded in "
                    f"{patience:g} s; look at the devices and add resume=true"
                )
        now = time.monotonic()
        state.now = state.now + now - self._since
        self._since = now
        return answers.pop(next(iter(answers)))

    def _look_around(self, patience: float) -> None:
        """Greet devices that are new, and give up those that left or are too late."""
        self._looked = time.monotonic()
        self.meet_newcomers()
        self._receive_all(give_up(self.fleet, patience))

    def _pump(self, timeout: float | None) -> None:
        """Send what waits to free nodes and take what came; None does not wait."""
        now = self.context.number
        send(self.fleet, "train", now, self._waiting(), self.exchanges.plan)
        found = look(self.fleet) if timeout is None else wait(self.fleet, timeout)
        self._receive_all(found)

    def _receive_all(self, found: Sequence[Result | Failure]) -> None:
        state: AsynchronousState = self.method.state
        known = set(state.clients)
        for answer in found:
            if answer.client in known:
                state.answers[answer.client] = answer
                self.exchanges.sent.pop(answer.client, None)
            elif isinstance(answer, Failure):
                self.context.record.failures.append(answer)
            else:
                self.context.record.bytes_up += payload_bytes([], answer.metrics)
                self.welcome([answer])

    def meet_newcomers(self) -> None:
        """Greet who is new; among real devices, go on while they answer."""
        if self.fleet.simulated or not self.method.state.clients:
            super().meet_newcomers()
            return
        away = self.fleet.outstanding.clients
        newcomers = [each for each in self.find_newcomers() if each not in away]
        now = self.context.number
        send(self.fleet, "query", now, newcomers, self.method.hello)

    def admissible(self, answers: list[Result]) -> list[Result]:
        """Return all answers: nobody is drawn, and who has no samples uploads none."""
        return answers

    def _waiting(self) -> list[ClientId]:
        busy = self.fleet.outstanding.clients
        return self._turns.waiting(self.method.state, busy, self._left)

    def welcome(self, answers: list[Result]) -> None:
        """Welcome newcomers; they begin with the mean model, or with all models."""
        state: AsynchronousState = self.method.state
        first = len(state.clients)
        super().welcome(answers)
        sent: list[Vector] = list(state.models)
        if not self.method.exchange.mixtures:
            sent = [np.mean(sent, axis=0, dtype=np.float32)]
        for row in range(first, len(state.clients)):
            state.served.append(self.method.personal(row, sent))
            self.exchanges.hand_out(row, sent)

    # Tests ---------------------------------------------------------------------------

    def note_tests(self, results: Results) -> list[ClientRow]:
        """Note tests; those that came with uploads where there are no others."""
        if not any(result.num_examples for result in results):
            results = Results(self.exchanges.tests.values())
        rows = super().note_tests(results)
        noted = dict(self.exchanges.noted)
        return [
            replace(row, measures={**row.measures, **noted.get(row.client, {})})
            for row in rows
        ]

"""The event loop of an asynchronous method: uploads are taken in one by one.

Every client has one task under way; its answer, an upload, changes the state and is
replied to at once. In a simulation a virtual clock says when each upload arrives: tasks
are computed ahead, on all workers, but uploads are taken in strictly in the order of
that clock, so a run is deterministic. Real devices decide when they upload.

A round is as many valid uploads as there are ``participants``. Whoever uploads much
more often than others waits until these have had their turns. After a round the
simulated clients test the models that they hold; real devices test theirs when they
upload next.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cfl_flower.client.requests import UploadRequest
from cfl_flower.communication.asynchronous import AsyncDispatcher, Backoff
from cfl_flower.communication.results import Results, payload_bytes
from cfl_flower.communication.validation import check_test
from cfl_flower.engine.declarations import UploadMethod
from cfl_flower.engine.rounds import Rounds
from cfl_flower.engine.uploads_state import AsynchronousSettings, AsynchronousState
from cfl_flower.errors import InvalidResultError, NoValidResultError
from cfl_flower.learning.gradients import TRAINING_PASSES
from cfl_flower.privacy.clipping import FEWEST, shortened, update_length
from cfl_flower.runs.record import ClientRow, RoundRecord
from cfl_flower.seeding import generator
from cfl_flower.types import (
    ClientId,
    Failure,
    Json,
    Plan,
    Result,
    Task,
    Vector,
    client_order,
)

STAMP_BYTES = 8
"""Of the time stamp that goes with every model."""

FEWEST_TURNS = 2
MOST_TURNS = 5
"""Uploads in a round after which a client waits for others: at least so many, and so
many times those that it would have if all were equally fast."""

LOOK_AROUND = 10.0
"""Seconds between two looks for new devices."""


class Uploads(Rounds):
    """Carries out an asynchronous method: an event loop over uploads."""

    method: UploadMethod

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.settings: AsynchronousSettings = self.config.strategy
        self._dispatcher = AsyncDispatcher(self.fleet)
        # What each client was sent last, until its answer to it has come.
        self._sent: dict[ClientId, list[Vector]] = {}
        self._tests: list[Result] = []
        self._noted: list[tuple[ClientId, dict[str, Json]]] = []
        self._backoff = Backoff()
        # The uploads of each client in this round, refused ones and failures included.
        self._turns = Counter[ClientId]()
        self._since = time.monotonic()
        self._looked = self._since
        self._left = 0

    @property
    def state(self) -> AsynchronousState:
        """The method's state."""
        state: AsynchronousState = self.method.state
        return state

    @property
    def record(self) -> RoundRecord:
        """The record of the round that is under way."""
        return self.context.record

    # What the exchange costs ---------------------------------------------------------

    @property
    def _upload(self) -> tuple[int, ...]:
        """The lengths of the arrays that a client uploads."""
        models = self.state.models
        both = len(models[0]), len(models)
        return both if self.method.exchange.mixtures else both[:1]

    def _bytes(self, lengths: Iterable[int]) -> int:
        """Return what the transfer of arrays with a time stamp costs the method."""
        return 0 if self.method.exchange.free else 4 * sum(lengths) + STAMP_BYTES

    def _client_passes(self, samples: int) -> int:
        """Return what a task costs its client, in forward passes of one sample."""
        trained: int = self.settings.local.count_samples(samples)
        looked_at = len(self.state.models) if self.method.exchange.mixtures else 0
        return TRAINING_PASSES * trained + looked_at * samples

    # Flower's hook: the loop ---------------------------------------------------------

    def start(self, num_rounds: int, timeout: float) -> None:
        """Take in uploads, as many in each round as there are participants."""
        self._left = num_rounds * self.config.participants
        done = self.context.done
        for server_round in range(done + 1, done + num_rounds + 1):
            self._open_round(server_round)
            began = self.state.now
            self._take_all(timeout)
            if self.settings.arrival == "devices" or not self.fleet.simulated:
                passed = self.state.now - began
                self.record.virtual_seconds = float(np.round(passed, 4))
            self.method.describe_round([noted for _, noted in self._noted])
            self._test_all(timeout)

    def _take_all(self, timeout: float) -> None:
        """Take in the uploads of a round, as many valid ones as are wanted."""
        valid = 0
        while valid < self.config.participants:
            valid += self._take(*self._next(timeout))
            # Every client that is there fails again and again.
            if self._backoff.hopeless(self.participants.present()):
                self.delivery.require_any([], "train")
        self.record.participants = self._turns.total()

    def _test_all(self, timeout: float) -> None:
        """Close a round: test, when nobody trains, and run the callbacks."""
        if self.fleet.simulated:
            while self._dispatcher.busy_clients or self._waiting():
                self._pump(timeout)
            if not self._left:
                # A longer run draws more changes of the data than this shorter one.
                self.state.answers.clear()
        messages = self.configure_evaluate()
        replies = self.delivery.exchange(messages) if messages else []
        self.aggregate_evaluate(replies)

    def _open_round(self, server_round: int) -> None:
        self.context.begin(server_round)
        self.record.virtual_seconds = None
        self.record.participants = self.config.participants
        self._tests = []
        self._noted = []
        self._turns.clear()
        # The files of the last round, before the state changes.
        self.fleet.grid.finish()
        self.meet_newcomers()
        self._pump(None)

    @property
    def _places(self) -> dict[ClientId, int]:
        return {client: row for row, client in enumerate(self.state.clients)}

    def _next(self, timeout: float) -> tuple[int, Result | Failure]:
        """Wait for the next upload; return its client's row, too."""
        answers = self.state.answers
        clients = self.state.clients
        self._pump(None)
        if self.fleet.simulated:
            row = min(range(len(clients)), key=self._urgency)
            while clients[row] not in answers:
                self._pump(timeout)
            # Whoever waited for the turns of others was due before.
            self.state.now = max(self.state.now, float(self.state.due[row]))
            return row, answers.pop(clients[row])
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
                    f"round {self.record.round}: no client uploaded in {patience:g} s; "
                    "look at the devices and add resume=true"
                )
        client = next(iter(answers))
        now = time.monotonic()
        self.state.now = self.state.now + now - self._since
        self._since = now
        return self._places[client], answers.pop(client)

    def _look_around(self, patience: float) -> None:
        """Greet devices that are new, and give up those that left or are too late."""
        self._looked = time.monotonic()
        self.meet_newcomers()
        self._receive_all(self._dispatcher.give_up(patience))

    def _urgency(self, row: int) -> tuple[int, float, Any]:
        client = self.state.clients[row]
        due: float = self.state.due[row].item()
        return self._full_turns(client), due, client_order(client)

    def _full_turns(self, client: ClientId) -> int:
        """Return how often a client has used up its turns in this round."""
        fair = self.config.participants / len(self.state.clients)
        return self._turns[client] // max(FEWEST_TURNS, math.ceil(MOST_TURNS * fair))

    def _pump(self, timeout: float | None) -> None:
        """Send what waits to free nodes and take what came; None does not wait."""
        dispatcher = self._dispatcher
        dispatcher.send("train", self.record.round, self._waiting(), self._plan)
        found = dispatcher.look() if timeout is None else dispatcher.wait(timeout)
        self._receive_all(found)

    def _receive_all(self, found: Sequence[Result | Failure]) -> None:
        known = self._places
        for answer in found:
            if answer.client in known:
                self.state.answers[answer.client] = answer
                self._sent.pop(answer.client, None)
            elif isinstance(answer, Failure):
                self.record.failures.append(answer)
            else:
                self.record.bytes_up += payload_bytes([], answer.metrics)
                self.welcome([answer])

    def meet_newcomers(self) -> None:
        """Greet who is new; among real devices, go on while they answer."""
        if self.fleet.simulated or not self.state.clients:
            super().meet_newcomers()
            return
        away = self._dispatcher.busy_clients
        newcomers = [each for each in self.find_newcomers() if each not in away]
        now = self.record.round
        self._dispatcher.send("query", now, newcomers, self.method.hello)

    def admissible(self, answers: list[Result]) -> list[Result]:
        """Return all answers: nobody is drawn, and who has no samples uploads none."""
        return answers

    def _waiting(self) -> list[ClientId]:
        """Return whose task is to be sent, the most urgent first."""
        state = self.state
        rows = range(len(self.state.clients))
        order = [state.clients[row] for row in sorted(rows, key=self._urgency)]
        away = self._dispatcher.busy_clients | state.answers.keys()
        if not self.fleet.simulated:
            able = set(self.participants.present()) - self._backoff.resting
            least = min(map(self._full_turns, able), default=0)
            away |= self._backoff.resting
            away |= {each for each in able if self._full_turns(each) > least}
        # In a simulation, only what can still be taken in before the run ends.
        soon = order[: self._left] if self.fleet.simulated else order
        return [client for client in soon if client not in away]

    def _plan(self, clients: Sequence[ClientId]) -> Plan:
        """Return the tasks of some clients: each trains what it was sent."""
        state = self.state
        places = self._places
        models: dict[int, Vector] = {}
        tasks = []
        for client in clients:
            row = places[client]
            sent = self._sent.get(client) or self._resend(row)
            models |= {id(model): model for model in sent}
            at = list(models)
            request = UploadRequest(
                stamp=int(state.stamps[row]),
                cycle=int(state.cycles[row]),
                tested=not self.fleet.simulated,
            )
            indices = tuple(at.index(id(model)) for model in sent)
            own = int(state.rounds[row])
            tasks.append(Task(client, indices, request.to_config(), own))
        return Plan(
            tasks,
            list(models.values()),
            reply=self._upload,
            keep_from=self.context.keep_from,
        )

    def _resend(self, row: int) -> list[Vector]:
        """Return what a client is sent whose task was lost with the server."""
        state = self.state
        if not self.method.exchange.mixtures:
            return [state.served[row]]
        # The models of now, and so their stamp.
        state.stamps[row] = state.epoch
        return list(state.models)

    # Uploads -------------------------------------------------------------------------

    def read_upload(self, result: Result) -> Result:
        """Refuse an upload of a model that was never sent, or with senseless tests."""
        stamp = result.metrics.get("stamp")
        # Of the client's last download: an older answer must not count once more.
        sent = int(self.state.stamps[self._places[result.client]])
        if not isinstance(stamp, int) or stamp != sent:
            raise InvalidResultError("stamp", f"stamp={stamp!r}, not {sent}")
        for name in ("before", "after"):
            check_test(result.metrics, name)
        return self.method.read_result("train", result)

    def _take(self, row: int, answer: Result | Failure) -> bool:
        """Take in an upload and reply to it; return whether it was valid."""
        client = self.state.clients[row]
        self._turns[client] += 1
        if isinstance(answer, Failure):
            self.record.failures.append(answer)
            valid = False
        else:
            read = self.delivery.read("train", [answer], self.read_upload)
            valid = bool(read) and self._admit(row, answer)
        self._backoff.note(client, valid)
        self._left -= valid
        if not valid:
            self._hand_out(row, self._resend(row))
        return valid

    def _admit(self, row: int, upload: Result) -> bool:
        """Let the method take an upload in; return whether it did."""
        state = self.state
        sent = list[Vector]()
        upload = self._bound(row, upload)
        state.epoch += 1

        def take_in(result: Result) -> Result:
            sent.extend(self.method.reply(row, result))
            return result

        if not self.delivery.read("train", [upload], take_in):
            state.epoch -= 1
            return False
        state.samples[row] = upload.num_examples
        self.record.bytes_up += self._bytes(self._upload)
        state.served[row] = self.method.personal(row, sent)
        state.stamps[row] = state.epoch
        self._note_upload(row, upload)
        self._hand_out(row, sent)
        return True

    def _bound(self, row: int, upload: Result) -> Result:
        """Shorten an update that is long beside the last ones of other clients.

        Before these are enough to outvote one, the model stays as it was received.
        """
        state = self.state
        others = np.delete(state.lengths, row)
        if self.settings.robust == "none" or not len(others):
            return upload
        received = state.served[row]
        length = update_length(upload.arrays[0], received)
        known = others[~np.isnan(others)]
        enough = len(known) >= min(FEWEST, len(others))
        typical = float(np.median(known)) if enough else 0.0
        bound = self.settings.robust_length * typical
        state.lengths[row] = length
        if length <= bound:
            return upload
        clipped = self.record.measures.setdefault("clipped", [])
        clipped.append(upload.client)
        model = shortened(upload.arrays[0], received, bound)
        return replace(upload, arrays=[model, *upload.arrays[1:]])

    def _note_upload(self, row: int, result: Result) -> None:
        noted = self.method.describe_upload(row, result)
        noted["passes"] = self._client_passes(result.num_examples)
        metrics = result.metrics
        if tested := int(metrics.get("before_tested", 0)):
            noted["before"] = int(metrics["before_correct"]) / tested
        self._noted.append((result.client, noted))
        if tested := int(metrics.get("after_tested", 0)):
            found = {"correct": metrics["after_correct"]}
            loss = float(metrics["after_loss"])
            test = Result(result.client, tested, [], loss, found)
            self._tests = [t for t in self._tests if t.client != test.client] + [test]

    def welcome(self, answers: list[Result]) -> None:
        """Welcome newcomers; they begin with the mean model, or with all models."""
        state = self.state
        first = len(state.clients)
        super().welcome(answers)
        sent: list[Vector] = list(state.models)
        if not self.method.exchange.mixtures:
            sent = [np.mean(sent, axis=0, dtype=np.float32)]
        for row in range(first, len(state.clients)):
            state.served.append(self.method.personal(row, sent))
            self._hand_out(row, sent)

    def _hand_out(self, row: int, sent: list[Vector]) -> None:
        """Give a client its next task, and say when the upload will arrive."""
        state = self.state
        client = self.state.clients[row]
        self._sent[client] = sent
        cost = self._bytes(map(len, sent))
        self.record.bytes_down += cost
        state.cycles[row] += 1
        own = self.settings.stream == "cycles"
        state.rounds[row] = state.cycles[row] if own else self.record.round
        if self.settings.arrival == "shuffled":
            cycle = int(state.cycles[row])
            moment = generator(self.config.seed, "arrival", cycle, client).random()
            state.due[row] = np.floor(state.due[row]) + 1 + moment
        else:
            passes = self._client_passes(int(state.samples[row]))
            both_ways = cost + self._bytes(self._upload)
            taken = self.context.clock.device_of(client).seconds(passes, both_ways)
            state.due[row] = state.now + taken

    # Tests ---------------------------------------------------------------------------

    def plan_tests(self, test: bool) -> Plan:
        """Return the tests of the models that simulated clients hold.

        Real devices test theirs when they upload next.
        """
        if not self.fleet.simulated:
            return Plan([])
        return super().plan_tests(test)

    def note_tests(self, results: Results) -> list[ClientRow]:
        """Note tests; those that came with uploads where there are no others."""
        if not any(result.num_examples for result in results):
            results = Results(self._tests)
        rows = super().note_tests(results)
        noted = dict(self._noted)
        return [
            replace(row, measures={**row.measures, **noted.get(row.client, {})})
            for row in rows
        ]

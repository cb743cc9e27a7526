"""What each client of an asynchronous method was sent, and what its upload changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cfl_flower.client.requests import UploadRequest
from cfl_flower.communication.validation import check_test
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.delivery import Delivery
from cfl_flower.engine.uploads_state import AsynchronousSettings, AsynchronousState
from cfl_flower.errors import InvalidResultError
from cfl_flower.learning.gradients import TRAINING_PASSES
from cfl_flower.privacy.clipping import FEWEST, shortened, update_length
from cfl_flower.seeding import generator
from cfl_flower.types import ClientId, Failure, Json, Plan, Result, Task, Vector

STAMP_BYTES = 8
"""Length of the time stamp that goes with every model."""


class Exchanges:
    """Gives clients their tasks, and lets the method take in what comes of them."""

    def __init__(self, method: Any, context: RoundContext, delivery: Delivery) -> None:
        self._method = method
        self._context = context
        self._delivery = delivery
        self._settings: AsynchronousSettings = context.config.strategy
        self.sent: dict[ClientId, list[Vector]] = {}
        """Models that each client was sent last, until its answer has come."""
        self.begin()

    def begin(self) -> None:
        """Begin a round."""
        self.tests: dict[ClientId, Result] = {}
        """The tests that came with uploads."""
        self.noted: list[tuple[ClientId, dict[str, Json]]] = []
        """Remarks of the method on each upload."""

    def plan(self, clients: Sequence[ClientId]) -> Plan:
        """Return the tasks of some clients: each trains what it was sent."""
        state: AsynchronousState = self._method.state
        models: list[Vector] = []
        tasks = []
        for client, row in zip(clients, state.rows(clients).tolist(), strict=True):
            sent = self.sent.get(client) or self.resend(row)
            request = UploadRequest(
                stamp=int(state.stamps[row]),
                cycle=int(state.cycles[row]),
                tested=not self._context.fleet.simulated,
            )
            indices = tuple(range(len(models), len(models) + len(sent)))
            models += sent
            own = int(state.rounds[row])
            tasks.append(Task(client, indices, request.to_config(), own))
        keep_from = self._context.keep_from
        return Plan(tasks, models, reply=self._lengths(), keep_from=keep_from)

    def resend(self, row: int) -> list[Vector]:
        """Return what a client is sent whose task was lost with the server."""
        state: AsynchronousState = self._method.state
        if not self._method.exchange.mixtures:
            return [state.served[row]]
        # The models of now, and so their stamp.
        state.stamps[row] = state.epoch
        return list(state.models)

    def read(self, result: Result) -> Result:
        """Refuse an upload of a model that was never sent, or with senseless tests."""
        stamp = result.metrics.get("stamp")
        # Of the client's last download: an older answer must not count once more.
        row = self._method.state.clients.index(result.client)
        sent = int(self._method.state.stamps[row])
        if not isinstance(stamp, int) or stamp != sent:
            raise InvalidResultError("stamp", f"stamp={stamp!r}, not {sent}")
        for name in ("before", "after"):
            check_test(result.metrics, name)
        return self._method.read_result("train", result)

    def take(self, answer: Result | Failure) -> bool:
        """Take in an upload and reply to it; return whether it was valid."""
        row = self._method.state.clients.index(answer.client)
        if isinstance(answer, Failure):
            self._context.record.failures.append(answer)
            valid = False
        else:
            read = self._delivery.read("train", [answer], self.read)
            valid = bool(read) and self._admit(row, answer)
        if not valid:
            self.hand_out(row, self.resend(row))
        return valid

    def _admit(self, row: int, upload: Result) -> bool:
        """Let the method take an upload in; return whether it did."""
        state: AsynchronousState = self._method.state
        sent = list[Vector]()
        upload = self._bound(row, upload)
        state.epoch += 1

        def take_in(result: Result) -> Result:
            sent.extend(self._method.reply(row, result))
            return result

        if not self._delivery.read("train", [upload], take_in):
            state.epoch -= 1
            return False
        state.samples[row] = upload.num_examples
        self._context.record.bytes_up += self._bytes(self._lengths())
        self._context.record.note_epochs([upload])
        state.served[row] = self._method.personal(row, sent)
        state.stamps[row] = state.epoch
        self._note_upload(row, upload)
        self.hand_out(row, sent)
        return True

    def _bound(self, row: int, upload: Result) -> Result:
        """Shorten an update that is long beside the last ones of other clients.

        Before these are enough to outvote one, the model stays as it was received.
        """
        state: AsynchronousState = self._method.state
        others = np.delete(state.lengths, row)
        if self._settings.robust == "none" or not len(others):
            return upload
        received = state.served[row]
        length = update_length(upload.arrays[0], received)
        known = others[~np.isnan(others)]
        enough = len(known) >= min(FEWEST, len(others))
        typical = float(np.median(known)) if enough else 0.0
        bound = self._settings.robust_length * typical
        state.lengths[row] = length
        if length <= bound:
            return upload
        clipped = self._context.record.measures.setdefault("clipped", [])
        clipped.append(upload.client)
        model = shortened(upload.arrays[0], received, bound)
        return replace(upload, arrays=[model, *upload.arrays[1:]])

    def _note_upload(self, row: int, result: Result) -> None:
        noted = self._method.describe_upload(row, result)
        metrics = result.metrics
        if tested := int(metrics.get("before_tested", 0)):
            noted["before"] = int(metrics["before_correct"]) / tested
        self.noted.append((result.client, noted))
        if tested := int(metrics.get("after_tested", 0)):
            found = {"correct": metrics["after_correct"]}
            loss = float(metrics["after_loss"])
            self.tests.pop(result.client, None)
            self.tests[result.client] = Result(result.client, tested, [], loss, found)

    def hand_out(self, row: int, sent: list[Vector]) -> None:
        """Give a client its next task, and say when the upload will arrive."""
        state: AsynchronousState = self._method.state
        client = state.clients[row]
        self.sent[client] = sent
        cost = self._bytes(map(len, sent))
        self._context.record.bytes_down += cost
        state.cycles[row] += 1
        own = self._settings.stream == "cycles"
        state.rounds[row] = state.cycles[row] if own else self._context.record.round
        state.due[row] = self._due(row, cost)

    # What it costs -------------------------------------------------------------------

    def _lengths(self) -> tuple[int, ...]:
        """Return the lengths of the arrays that a client uploads."""
        models = self._context.state.models
        both = len(models[0]), len(models)
        return both if self._method.exchange.mixtures else both[:1]

    def _bytes(self, lengths: Iterable[int]) -> int:
        """Return what the transfer of arrays with a time stamp costs the method."""
        return 0 if self._method.exchange.free else 4 * sum(lengths) + STAMP_BYTES

    def _due(self, row: int, received: int) -> float:
        """Return when a client uploads that has received so many bytes now."""
        state: AsynchronousState = self._method.state
        config = self._context.config
        client = state.clients[row]
        if config.strategy.arrival == "shuffled":
            cycle = int(state.cycles[row])
            moment = generator(config.seed, "arrival", cycle, client).random()
            return float(np.floor(state.due[row]) + 1 + moment)
        samples = int(state.samples[row])
        trained = config.strategy.local.count_samples(samples)
        looked_at = len(state.models) if self._method.exchange.mixtures else 0
        # Forward passes over one sample.
        passes = TRAINING_PASSES * trained + looked_at * samples
        both_ways = received + self._bytes(self._lengths())
        device = self._context.clock.device_of(client)
        return state.now + device.seconds(passes, both_ways)

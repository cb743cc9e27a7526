"""Thousands of mutated messages, at either end, of every strategy."""

from __future__ import annotations

import copy
import dataclasses
import logging
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from cfl_flower.communication.fleet import Fleet
from cfl_flower.communication.grid import UNDECODABLE
from cfl_flower.communication.results import Results
from cfl_flower.communication.validation import LARGEST, LARGEST_COUNT, is_bounded
from cfl_flower.engine.rounds import Rounds
from cfl_flower.engine.uploads import Uploads
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Result
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import Runner
from tests.contract.test_strategies import NEEDS, STRATEGIES
from tests.fuzzing import Mutator

pytestmark = pytest.mark.slow

NAMES = [str(getattr(each, "values", [each])[0]) for each in STRATEGIES]
NAMES.remove("oracle")  # which needs a simulation

MASKED = ["strategy=fedavg", "privacy.secure_sums=true", "participants=12"]

HOSTILE = {2, 7, 11}
"""Devices whose real answers are forged as well."""

REPLIES, MESSAGES = 12, 3
"""Forgeries of each real reply to the server, and of each message to a device."""


SLOWEST = 20.0
"""Seconds that a device may take for a forged message."""


def numbers(value: object) -> list[np.ndarray]:
    """Return all arrays of numbers in a report, however deep."""
    if isinstance(value, np.ndarray):
        return [value] if value.dtype.kind in "fiu" else []
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, each.name) for each in dataclasses.fields(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [found for each in value for found in numbers(each)]
    return []


def assert_sound(result: Result) -> None:
    """Assert that what was taken in is within all bounds."""
    assert all(a.dtype == np.float32 and is_bounded(a) for a in result.arrays)
    assert type(result.num_examples) is int
    assert 0 <= result.num_examples <= LARGEST_COUNT
    scalars = [result.loss, *result.metrics.values()]
    assert all(
        abs(each) <= LARGEST for each in scalars if isinstance(each, int | float)
    )
    assert all(np.isfinite(each).all() for each in numbers(result.report))


def asks_much(content: RecordDict) -> set[str]:
    """Return the large numbers in a message: a server decides how long devices work."""
    texts = [str(each) for r in content.config_records.values() for each in r.values()]
    return {found for text in texts for found in re.findall(r"\d{4,}", text)}


class ForgingGrid(InProcessGrid):
    """Twelve devices, of whom three send what they should not."""

    def __init__(self, mutator: Mutator) -> None:
        super().__init__({"client-id": client} for client in range(12))
        self.mutator = mutator
        self.messages, self.answered = 0, 0
        self._hostile: set[str] = set()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Do every task, those of three devices after a forged one."""
        listed = list(messages)
        for message in listed:
            if message.metadata.message_type != "query.identify":
                for _ in range(MESSAGES):
                    self.try_message(message)
        ids = super().push_messages(listed)
        for message, key in zip(listed, ids, strict=True):
            client = self.node_configs[message.metadata.dst_node_id]["client-id"]
            self._hostile |= {key} if client in HOSTILE else set()
        return ids

    def try_message(self, message: Message) -> None:
        """Send a forged message to the device: nothing but an error may come of it."""
        try:
            content = self.mutator.records(copy.deepcopy(message.content))
        except UNDECODABLE:
            return
        if asks_much(content) - asks_much(message.content):
            return
        self.messages += 1
        node, started = message.metadata.dst_node_id, time.monotonic()
        context = Context(1, node, self.node_configs[node], RecordDict(), {})
        forged = copy.copy(message)
        forged.content = content
        # As in Flower, an exception is an error reply.
        with suppress(Exception):
            self.client_app(forged, context)
            self.answered += 1
        assert time.monotonic() - started < SLOWEST

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Hand out replies; one that cannot be decoded takes the others with it."""
        found = super().pull_messages(message_ids)
        for reply in found:
            hostile = reply.metadata.reply_to_message_id in self._hostile
            if hostile and not reply.has_error():
                reply.content = self.mutator.records(reply.content)
        return found


class Fuzz:
    """Forges replies where the server reads them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mutator: Mutator) -> None:
        self.mutator, self.replies, self.refused = mutator, 0, 0
        self.strategy: Any = None
        read, init = Fleet.read_reply, Rounds.__init__

        def read_reply(
            fleet: Fleet, pending: Any, reply: Message | None, results: Results
        ) -> None:
            if reply is not None and not reply.has_error():
                for _ in range(REPLIES):
                    self.try_reply(fleet, pending, reply, read)
            read(fleet, pending, reply, results)

        def remember(engine: Rounds, *args: Any, **named: Any) -> None:
            init(engine, *args, **named)
            self.strategy = engine.method

        monkeypatch.setattr(Fleet, "read_reply", read_reply)
        monkeypatch.setattr(Rounds, "__init__", remember)

    def try_reply(self, fleet: Fleet, pending: Any, reply: Message, read: Any) -> None:
        """Read a forged reply, and what the method reads in it; forget it."""
        forged = copy.copy(reply)
        try:
            forged.content = self.mutator.records(reply.content)
        except UNDECODABLE:
            return
        self.replies += 1
        found = Results()
        read(fleet, pending, forged, found)
        self.refused += len(found.failures)
        assert all(each.reason and each.detail for each in found.failures)
        for result in found:
            try:
                assert_sound(self.read(pending.phase, result))
            except InvalidResultError as error:
                self.refused += 1
                assert error.reason and error.detail

    def read(self, phase: str, result: Result) -> Result:
        """Return a result as it is read where it arrives."""
        engine = self.strategy.engine
        if phase == "train" and isinstance(engine, Uploads):
            return engine.exchanges.read(result)
        read: Result = self.strategy.read_result(phase, result)
        return read


@pytest.mark.parametrize("name", [*NAMES, "masked"])
def test_forged_replies_and_messages_harm_nothing(
    name: str,
    run_small: Runner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("cfl_flower.communication.nodes.JOIN_TIMEOUT", 0.1)
    monkeypatch.setattr("cfl_flower.communication.nodes.IDENTIFY_TIMEOUT", 0.1)
    caplog.set_level(logging.CRITICAL, "cfl_flower")
    mutator = Mutator([*NAMES, "masked"].index(name))
    fuzz, grid = Fuzz(monkeypatch, mutator), ForgingGrid(mutator)
    strategy = f"strategy={name}"
    options = [strategy, *NEEDS.get(strategy, [])] if name in NAMES else MASKED
    small = ["rounds=2", "drift.rounds=[2]", "system.task_timeout=5"]
    run = run_small(*options, *small, grid=grid)
    assert len(run.rounds) == 2
    assert all(map(is_bounded, fuzz.strategy.state.models))
    assert fuzz.replies > 100
    assert grid.messages > grid.answered > 0
    assert fuzz.refused > 0

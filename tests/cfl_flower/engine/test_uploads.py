"""The event loop of methods without rounds, and whose turn it is."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message

from cfl_flower.client_app import app
from cfl_flower.communication.fleet import Fleet
from cfl_flower.config.compose import compose_config
from cfl_flower.engine import turns as module
from cfl_flower.engine.exchanges import STAMP_BYTES
from cfl_flower.engine.simulated_devices import Device, Devices
from cfl_flower.engine.turns import Turns
from cfl_flower.engine.uploads import Uploads
from cfl_flower.errors import InvalidResultError, NoValidResultError
from cfl_flower.learning.gradients import TRAINING_PASSES
from cfl_flower.server_app import open_stream
from cfl_flower.state import ClusteredState
from cfl_flower.types import ClientId, Config, Failure, Reply, Result, Vector
from clients.families.asynchronous import AsynchronousClient
from simulations.engines.inprocess import InProcessGrid
from strategies.fedasync import FedAsync
from tests.conftest import app_of, open_method

SMALL = ["strategy=ccfl", "strategy.public=30"]


class _LastFirst(InProcessGrid):
    """Devices whose uploads come back one at a time, that sent last first."""

    lost: frozenset[tuple[int, str]] = frozenset()
    """Nodes that never answer a kind of message."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._order: list[str] = []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            told = message.metadata
            if (told.dst_node_id, told.message_type) in self.lost:
                names.append(f"lost {told.dst_node_id}")
            else:
                names += super().push_messages([message])
        self._order += names
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        asked = set(message_ids)
        waiting = [name for name in self._order if name in asked]
        for name in reversed(waiting):
            if found := super().pull_messages([name]):
                return found
        return []


DEVICES = [{"client-id": client} for client in range(12)]


def test_devices_are_taken_in_as_they_come(run_small, monkeypatch):
    # This grid answers one of all that are asked for at a time.
    monkeypatch.setattr("cfl_flower.communication.grid.REQUESTS", 1)
    run = run_small(*SMALL, "drift.rounds=[]", grid=_LastFirst(DEVICES))
    # Whoever answers last is asked again, and answers before all others again.
    assert 0 < len({row["client"] for row in run.clients}) < 12
    assert [row["participants"] for row in run.rounds] == [6] * 4


def test_device_that_leaves_stops_nobody(run_small):
    class Leaving(_LastFirst):
        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            if len(self._order) > 12:
                self.lost = frozenset({(1011, "train")})
            return super().push_messages(messages)

    run = run_small(*SMALL, "drift.rounds=[]", grid=Leaving(DEVICES))
    assert len(run.rounds) == 4
    assert run.clients[-1]["client"] != 11
    assert all(row["failures"] == [] for row in run.rounds)
    assert sum(run.rounds[-1]["cluster_sizes"]) == 12


def test_silent_newcomer_stops_nobody(run_small, monkeypatch):
    # For clients 12 and 13, which are not there from the start.
    monkeypatch.setattr("cfl_flower.communication.nodes.JOIN_TIMEOUT", 0.1)

    class Silent(_LastFirst):
        """Two join after the first uploads; one of them never answers a question."""

        lost = frozenset({(1012, "query")})

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            names = super().push_messages(messages)
            if len(self._order) > 14 and len(self.node_configs) == 12:
                self.add_node({"client-id": 12})
                self.add_node({"client-id": 13})
            return names

    grid = Silent(DEVICES)
    # Nothing would end a wait for it.
    size = ["drift.rounds=[]", "rounds=6", "clients=14"]
    run = run_small(*SMALL, *size, "system.message_timeout=0", grid=grid)
    assert grid._order.count("lost 1012") == 1
    assert sum(run.rounds[-1]["cluster_sizes"]) == 13
    assert 13 in {row["client"] for row in run.clients}


@pytest.mark.parametrize("wait", [0, 1])
def test_asynchronous_run_ends_when_nobody_uploads(wait, run_small):
    grid = _LastFirst(DEVICES)
    grid.lost = frozenset((node, "train") for node in range(1000, 1012))
    options = ["system.message_timeout=1", f"strategy.policy.wait={wait}"]
    # Whoever may hold an upload is waited for as much longer.
    with pytest.raises(NoValidResultError, match=f"no client uploaded in {1 + wait} s"):
        run_small(*SMALL, *options, grid=grid)


@pytest.mark.parametrize(("name", "stamp"), [("ccfl", 2), ("fedsoft", 5)])
def test_a_model_that_is_sent_again_has_the_stamp_of_its_epoch(name, stamp, tmp_path):
    strategy = open_method(tmp_path, f"strategy={name}", "strategy.public=30")
    strategy.engine.welcome([Result(0, 5)])
    state = strategy.state
    state.epoch, state.stamps = 5, np.array([2])
    sent = strategy.engine.exchanges.resend(0)
    # Whoever mixes the models itself is sent those of now.
    assert state.stamps.tolist() == [stamp]
    assert len(sent) == (1 if name == "ccfl" else len(state.models))


def test_broken_device_neither_ends_the_run_nor_is_asked_all_the_time(run_small):
    asked: list[Message] = []

    def answer(message: Message, context: Context) -> Message:
        told = message.metadata
        if (told.dst_node_id, told.message_type) != (1011, "train"):
            return app(message, context)
        asked.append(message)
        raise RuntimeError("broken")

    grid = InProcessGrid(DEVICES, app_of(answer))
    run = run_small(*SMALL, "drift.rounds=[]", grid=grid)
    assert len(asked) == 1
    assert [each["client"] for each in run.failures] == [11]
    assert sum(row["participants"] for row in run.rounds) == 4 * 6 + 1


def broken(*honest: Any) -> Reply:
    raise ValueError("broken")


LIES: dict[str, Callable[[list[Any], int, Any], Reply]] = {
    # Such a task takes no time.
    "one sample": lambda arrays, count, metrics: (arrays, 1, metrics),
    "no sample": lambda arrays, count, metrics: (arrays, 0, metrics),
    "no number": lambda arrays, *told: ([each * np.nan for each in arrays], *told),
    "stamp": lambda arrays, count, metrics: (arrays, count, {**metrics, "stamp": -1}),
    "broken": broken,
}
"""What a client that is not to be trusted makes of its upload."""


@pytest.fixture
def lie(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that lets some clients lie in a way."""

    def let(kind: str, clients: Iterable[int] = (5,)) -> None:
        honest = AsynchronousClient.fit

        def fit(self: AsynchronousClient, parameters: Any, config: Config) -> Reply:
            told = honest(self, parameters, config)
            return LIES[kind](*told) if self.context.client in clients else told

        monkeypatch.setattr(AsynchronousClient, "fit", fit)

    return let


@pytest.fixture
def one_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the device of client 5 be by far the fastest."""

    def draw(_: Devices, seed: int, client: ClientId) -> Device:
        return Device(0.01, 1e9) if client == 5 else Device(40, 5000)

    monkeypatch.setattr(Devices, "draw", draw)


METHODS = ["ccfl", "fedasync", "fedbuff", "fedsoft", "local_async"]
FAILING = [(method, "no sample") for method in METHODS] + [
    ("fedasync", kind) for kind in ("no number", "stamp", "broken")
]


@pytest.mark.usefixtures("one_fast")
@pytest.mark.parametrize(("method", "kind"), FAILING)
def test_a_simulated_client_that_fails_costs_only_its_own_result(
    method, kind, lie, run_small
):
    lie(kind)
    run = run_small(f"strategy={method}", "drift.rounds=[]")
    assert {each["client"] for each in run.failures} == {5}
    for row in run.rounds:
        failed = [each for each in row["failures"] if each["phase"] == "train"]
        # It is asked a few times, and six others' uploads are in each round.
        assert 0 < len(failed) <= 4
        assert row["participants"] == 6 + len(failed)


class Refusing(FedAsync):
    """Refuses uploads of one sample only when it is to take them in."""

    def reply(self, row: int, result: Result) -> list[Vector]:
        if result.num_examples == 1:
            raise InvalidResultError("shape", "nothing for it")
        return super().reply(row, result)


UPLOAD: dict[str, Any] = {"stamp": 0}
SPOILT: dict[str, Callable[[Vector], Result | Failure]] = {
    "no answer": lambda model: Failure(0, "train", "timeout", "too late"),
    "of another model": lambda model: Result(0, 5, [model], None, {"stamp": -1}),
    "of no model": lambda model: Result(0, 5, [model], None, {}),
    "a senseless test": lambda model: Result(
        0, 5, [model], None, {**UPLOAD, "before_tested": 3, "before_correct": 4}
    ),
    "refused by the method": lambda model: Result(0, 1, [model], None, UPLOAD),
}


def known(state: ClusteredState) -> dict[str, Any]:
    """Return what is remembered but for the next task."""
    again = ("cycles", "rounds", "due")
    return {name: each for name, each in asdict(state).items() if name not in again}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_an_upload_that_is_not_taken_in_changes_nothing(spoilt, tmp_path):
    config = compose_config(["strategy=fedasync", f"output_dir={tmp_path}"])
    method = Refusing(config, Fleet(InProcessGrid([{}]), config), config.timeline)
    method.engine.context.begin(1)
    method.engine.welcome([Result(client, 5) for client in range(3)])
    exchanges = method.engine.exchanges
    before = known(method.state.snapshot())
    model = method.state.models[0] + 1
    assert not exchanges.take(SPOILT[spoilt](model))
    assert len(method.engine.context.record.failures) == 1
    np.testing.assert_equal(known(method.state), before)
    assert method.state.cycles.tolist() == [2, 1, 1]
    assert not exchanges.noted
    assert exchanges.sent[0] == [method.state.served[0]]
    # What comes next counts as if nothing had been between.
    assert exchanges.take(Result(0, 5, [model], None, UPLOAD))
    assert method.state.epoch == 1
    assert method.state.stamps.tolist() == [1, 0, 0]
    assert exchanges.noted[0][1]["staleness"] == 0


def test_a_simulation_ends_when_all_clients_fail_again_and_again(lie, run_small):
    lie("broken", range(12))
    with pytest.raises(NoValidResultError, match="none of 36 clients gave a valid"):
        run_small("strategy=fedasync", "drift.rounds=[]")


@pytest.mark.usefixtures("one_fast")
@pytest.mark.parametrize("method", METHODS)
def test_a_client_that_is_done_at_once_has_a_few_turns_in_a_round(
    method, lie, run_small, monkeypatch
):
    lie("one sample")
    turns, now = list[Counter[Any]](), list[float]()
    close = Uploads._test_all

    def watched(engine: Uploads, timeout: float) -> None:
        turns.append(engine._turns.taken.copy())
        now.append(engine.method.state.now)
        close(engine, timeout)

    monkeypatch.setattr(Uploads, "_test_all", watched)
    run_small(f"strategy={method}", "participants=12")
    assert [each[5] for each in turns] == [5] * 4
    assert now == sorted(now)


def test_a_device_that_answers_at_once_has_a_few_turns_in_a_round(
    run_small, monkeypatch
):
    class Slow(InProcessGrid):
        """Device 5 answers at once, and all others some looks later."""

        def __init__(self) -> None:
            super().__init__({"client-id": client} for client in range(12))
            self.waits: dict[str, int] = {}
            self.tasks = Counter[int]()

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            listed = list(messages)
            names = super().push_messages(listed)
            for name, message in zip(names, listed, strict=True):
                if message.metadata.message_type == "train":
                    node = message.metadata.dst_node_id
                    self.tasks[node] += 1
                    self.waits[name] = 0 if node == 1005 else 40
            return names

        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            asked = list(message_ids)
            for name in asked:
                self.waits[name] = self.waits.get(name, 0) - 1
            return super().pull_messages(n for n in asked if self.waits[n] < 0)

        def send_and_receive(
            self, messages: Iterable[Message], *, timeout: float | None = None
        ) -> list[Message]:
            return super().pull_messages(super().push_messages(messages))

    grid = Slow()
    run_small("strategy=fedasync", "drift.rounds=[]", "participants=12", grid=grid)
    # The last one is under way when the run ends.
    assert grid.tasks[1005] <= 4 * 5 + 1
    assert sum(grid.tasks.values()) >= 4 * 12


def test_an_upload_is_due_once_both_ways_and_the_training_have_passed(tmp_path):
    options = ["strategy=fedasync", "drift=none", "clients=6", "participants=6"]
    method = open_method(tmp_path, *options, "rounds=1")
    engine = method.engine
    engine._open_round(1)
    state = method.state
    for row, samples in enumerate(state.samples.tolist()):
        device = engine.context.clock.device_of(row)
        passes = TRAINING_PASSES * method.settings.local.count_samples(samples)
        both_ways = 2 * (4 * len(state.models[0]) + STAMP_BYTES)
        assert state.due[row] == pytest.approx(device.seconds(passes, both_ways))


def test_shuffled_clients_upload_once_in_each_cycle(tmp_path):
    options = ["strategy=fedasync", "strategy.arrival=shuffled", "drift.rounds=[3]"]
    size = ["clients=6", "participants=6", "rounds=5", "strategy.local.epochs=1"]
    config = compose_config([*options, *size, f"output_dir={tmp_path}"])
    taken: list[int] = []

    class Watched(FedAsync):
        def reply(self, row: int, result: Any) -> Any:
            taken.append(row)
            return super().reply(row, result)

    method = Watched(config, Fleet(InProcessGrid([{}]), config), config.timeline)
    method.engine.fleet.discover()
    method.engine.run()
    cycles = [taken[start : start + 6] for start in range(0, 30, 6)]
    assert [sorted(cycle) for cycle in cycles] == [list(range(6))] * 5
    assert len({tuple(cycle) for cycle in cycles}) > 1
    # Each has the model of after its last upload, and the samples of then.
    stamps = [24 + 1 + cycles[-1].index(row) for row in range(6)]
    assert method.state.stamps.tolist() == stamps
    stream = open_stream(config)
    sizes = [[len(stream.view(row, n).labels) for row in range(6)] for n in (1, 5)]
    assert method.state.samples.tolist() == sizes[1] != sizes[0]


@pytest.fixture
def turns(tmp_path: Path) -> Turns:
    method = open_method(tmp_path, "strategy=fedasync")
    method.engine.welcome([Result(1, 5), Result(2, 5)])
    found: Turns = method.engine._turns
    return found


def test_who_failed_rests_until_it_succeeds_or_some_time_has_passed(turns, monkeypatch):
    turns.note(1, valid=False)
    turns.note(2, valid=True)
    assert turns.resting() == {1}
    turns.note(1, valid=True)
    assert turns.resting() == set()
    monkeypatch.setattr(module, "REST", 0.0)
    turns.note(1, valid=False)
    assert turns.resting() == set()


def test_it_is_hopeless_when_all_fail_three_times_in_a_row(turns):
    for sound in (False, False, True, False, False):
        turns.note(1, sound)
        turns.note(2, valid=False)
    assert not turns.hopeless()
    turns.note(1, valid=False)
    assert turns.hopeless()
    turns.note(2, valid=True)
    assert not turns.hopeless()

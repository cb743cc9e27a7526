"""A client is an identity, a node a place: devices move, leave and come back."""

import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

from cfl_flower.communication.fleet import Fleet
from cfl_flower.communication.grid import UNDECODABLE
from cfl_flower.communication.identity import KEY, last_sentence
from cfl_flower.config.compose import compose_config
from cfl_flower.environment.code_version import code_digest
from cfl_flower.types import is_client_id
from simulations.engines.inprocess import InProcessGrid
from tests.cfl_flower.client.test_node_config import (
    LOW,
    SITES,
    Sites,
    add_samples,
    clusters,
    node_config,
)
from tests.fuzzing import Mutator

QUICK = [*SITES, "strategy.local.epochs=1"]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("The worker died. Check its log.", "The worker died"),
        (
            "<class 'ClientAppException'>:<'\nException ClientAppException occurred. "
            "Message: own.A is not allowed. Set CFL_PLUGINS.'>",
            "own.A is not allowed. Set CFL_PLUGINS.",
        ),
        (
            "<class 'cfl_flower.errors.DeviceFailedError'>:<'ConfigError; its text is "
            "in the device's own log'>",
            "ConfigError; its text is in the device's own log",
        ),
    ],
)
def test_the_reason_of_an_error_is_what_the_app_raised(reason, said):
    InProcessGrid()  # without which Flower knows no task that could be answered
    asked = Message(RecordDict(), 1, "train")
    assert last_sentence(Message(Error(3, reason), reply_to=asked)) == said


def test_device_that_registers_again_keeps_all_that_it_has(run_small, tmp_path):
    """Its own model is on another node now, and nothing of the run changes."""
    config = [*QUICK, "strategy=local_rounds"]
    undisturbed = run_small(*config, "rounds=5", grid=Sites(tmp_path), folder="quiet")
    run_small(*config, "rounds=2", grid=Sites(tmp_path))
    moved = Sites(tmp_path)
    moved.remove_node(1000)
    moved.add_node(node_config(tmp_path, "site-a"))
    run = run_small(*config, "rounds=5", "resume=true", grid=moved)
    assert run.numbers == undisturbed.numbers


def test_device_that_moves_loses_that_round_only(run_small, tmp_path, caplog):
    grid = Sites(tmp_path)

    def move() -> None:
        grid.remove_node(1000)
        grid.add_node(node_config(tmp_path, "site-a"))

    grid.events[2] = move
    run = run_small(*QUICK, "strategy=fielding", "rounds=4", grid=grid)
    assert "client site-a has left with node 1000" in caplog.text
    lost = [[f["client"] for f in row["failures"]] for row in run.rounds]
    assert lost == [[], ["site-a"] * 2, [], []]
    details = {f["detail"] for f in run.rounds[1]["failures"]}
    assert details == {"the node is not available"}
    assert clusters(run, 4) == clusters(run, 1)


def test_two_devices_that_claim_one_id_are_both_refused(run_small, tmp_path, caplog):
    grid = Sites(tmp_path)
    grid.events[1] = lambda: grid.add_node(node_config(tmp_path, "site-a"))
    grid.events[3] = lambda: grid.remove_node(1003)
    run = run_small(*QUICK, "strategy=fielding", "rounds=5", grid=grid)
    assert (
        "site-a is claimed by node 1000 and by node 1003; both refused" in caplog.text
    )
    failures = [f for row in run.rounds[1:3] for f in row["failures"]]
    assert {(f["client"], f["reason"]) for f in failures} == {("site-a", "node")}
    assert all("claimed by node 1000 and by" in f["detail"] for f in failures)
    assert "site-a" not in clusters(run, 2)
    assert clusters(run, 5) == clusters(run, 1), "alone again, it is who it was"


def test_device_that_comes_back_later_is_brought_up_to_date(run_small, tmp_path):
    grid = Sites(tmp_path)

    def change() -> None:
        (tmp_path / "site-c" / "first.npz").unlink()
        add_samples(tmp_path / "site-c", "second", LOW)
        grid.add_node(node_config(tmp_path, "site-c"))

    grid.events[2] = lambda: grid.remove_node(1002)
    grid.events[12] = change
    run = run_small(*QUICK, "strategy=fielding", "rounds=15", grid=grid)
    sizes = {tuple(row["cluster_sizes"]) for row in run.rounds[:12]}
    assert len(sizes) == 1, "its cluster stays as it is"
    details = {f["detail"] for row in run.rounds[2:11] for f in row["failures"]}
    assert details == {"its device is not connected"}
    assert set(clusters(run, 8)) == {"site-a", "site-b"}
    assert [row["drifted"] for row in run.rounds[11:]] == [0, 1, 0, 0]
    final = clusters(run, 15)
    assert final["site-c"] == final["site-a"] == final["site-b"]
    rows = {row["client"]: row for row in run.clients if row["round"] == 15}
    assert rows["site-c"]["accuracy"] > 0.85, "it is served what the others learned"


class Gathering(Sites):
    """Nodes that come one after the other, with every look at who is there."""

    def __init__(self, root: Path, first: dict[str, Any]) -> None:
        super().__init__(root)
        self.later = list(self.node_configs.values())
        self.node_configs = {}
        self.add_node(first)

    def get_node_ids(self) -> list[int]:
        there = super().get_node_ids()
        if self.later:
            self.add_node(self.later.pop(0))
        return there


class Dying(Sites):
    """Devices of which some are dead when they are first asked for anything."""

    def __init__(self, root: Path, dead: set[int]) -> None:
        super().__init__(root)
        self.dead = set(dead)

    def answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        if node in self.dead:
            self.dead.remove(node)
            return Message(Error(5, "the node is not available"), reply_to=message)
        return super().answer(message)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ({"data-dir": "none"}, "is left out: it has no client-id in its node config"),
        ({"client-id": "../a"}, "is left out: a node cannot run the app: "),
    ],
)
def test_bad_node_that_comes_first_ends_no_run(
    first, reason, run_small, tmp_path, caplog
):
    grid = Gathering(tmp_path, first)
    run = run_small(*QUICK, "strategy=fedavg", "rounds=2", grid=grid)
    assert reason in caplog.text
    assert set(clusters(run, 2)) == {"site-a", "site-b", "site-c"}
    assert all(row["failures"] == [] for row in run.rounds)


@pytest.mark.parametrize("dead", [{1000}, {1000, 1001, 1002}])
def test_device_that_dies_takes_part_once_it_is_back(dead, run_small, tmp_path, caplog):
    """Under its old node id, and before anybody saw that it had left."""
    grid = Dying(tmp_path, dead)
    run = run_small(*QUICK, "strategy=fedavg", "rounds=2", grid=grid)
    assert not grid.dead
    assert "left out" not in caplog.text
    assert set(clusters(run, 1)) == {"site-a", "site-b", "site-c"}


def test_device_that_hangs_is_waited_for_once(run_small, tmp_path, monkeypatch):
    monkeypatch.setattr("cfl_flower.communication.nodes.IDENTIFY_TIMEOUT", 0.2)
    monkeypatch.setattr("cfl_flower.communication.nodes.JOIN_TIMEOUT", 0.2)
    grid, rest, waits = Sites(tmp_path), InProcessGrid.pull_messages, []

    def pull(message_ids: Iterable[str]) -> list[Message]:
        found = rest(grid, message_ids)
        told = [(m.metadata.message_type, m.metadata.src_node_id) for m in found]
        silent = ("query.identify", 1001)
        heard = [m for m, each in zip(found, told, strict=True) if each != silent]
        waits.append(told.count(silent))
        return heard

    monkeypatch.setattr(grid, "pull_messages", pull)
    run = run_small(*QUICK, "strategy=fedavg", "rounds=6", grid=grid)
    assert set(clusters(run, 6)) == {"site-a", "site-c"}
    assert sum(waits) >= 1, "it is asked again"


@pytest.mark.parametrize(
    "says",
    [
        {"code": "whatever", "nodes": 1},
        {"code": code_digest(), "nodes": 1},
        {"code": code_digest(), "nodes": True, "client-id": "site-d"},
    ],
)
def test_no_device_decides_what_a_run_is(says, run_small, tmp_path):
    """It answers first, alone, as a worker of a simulation would."""
    grid = Gathering(tmp_path, {"client-id": 9})
    call = grid.answer

    def forge(message: Message) -> Message:
        reply = call(message)
        node = message.metadata.dst_node_id
        asked = message.metadata.message_type
        if asked == "query.identify" and grid.node_configs[node] == {"client-id": 9}:
            reply.content["identity"] = ConfigRecord(says)
        return reply

    grid.answer = forge  # type: ignore[method-assign]
    run = run_small(*QUICK, "strategy=fedavg", "rounds=2", grid=grid)
    honest = {"site-a", "site-b", "site-c"}
    assert honest <= set(clusters(run, 2))
    assert all(f["client"] not in honest for r in run.rounds for f in r["failures"])


def test_forged_identities_end_no_run(tmp_path):
    """3,000 of them, with the keys and the types of a real one and others."""
    random = Random(0)
    mutator = Mutator(0)
    names = ["code", "client-id", "nodes", KEY, "other"]
    values = [
        *(code_digest(), "site-a", 0, 3, 2**62, -1, True, 0.5, "", "x" * 1000, "\n"),
        *(b"", b"k" * 32, bytes(32), b"k" * 9, [1, 2], ["a"], [0.5], [b"k"], [True]),
    ]
    fleet = Fleet(Sites(tmp_path), compose_config([*QUICK, "strategy=fedavg"]))
    fleet.discover()
    honest = fleet.clients
    for number in range(10_000, 13_000):
        told = {k: random.choice(values) for k in names if random.random() < 0.7}
        asked = Message(RecordDict(), 5, "query.identify")
        asked.metadata.__dict__["_message_id"] = f"m{number}"
        fleet._queries[f"m{number}"] = number
        fleet._asked[number] = 0.0
        content = RecordDict({"identity": ConfigRecord(told)})
        if random.random() < 0.5:
            with suppress(*UNDECODABLE):  # `PatientGrid` takes no more than these
                content = mutator.records(content)
        fleet._register([Message(content, reply_to=asked)])
    assert set(honest) - set(fleet.clients) <= {"site-a"}, "which is disputed"
    assert not fleet.simulated
    assert all(is_client_id(client) for client in fleet.clients)


class Named(Sites):
    """Devices with registered names, of which one may be away or late."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.silent = 0

    def get_nodes(self) -> list[Any]:
        names = {1000: "site-a", 1001: "St Mary\n", 1002: ""}
        known = [(node, names.get(node, "")) for node in self.node_configs]
        return [SimpleNamespace(node_id=node, name=name) for node, name in known]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        self.silent -= 1
        return [] if self.silent >= 0 else super().pull_messages(message_ids)


@pytest.fixture
def said(monkeypatch, caplog):
    """Return the lines on who is here and who is waited for, which come at once."""
    for module in ("nodes", "fleet"):
        monkeypatch.setattr(f"cfl_flower.communication.{module}.SAY_EVERY", 0.0)
    monkeypatch.setattr("cfl_flower.communication.nodes.JOIN_TIMEOUT", 0.1)
    caplog.set_level(logging.WARNING, "cfl_flower")
    now = r"[A-Z][a-z]{2} \d\d:\d\d"
    return lambda: [re.sub(now, "NOW", line) for line in caplog.messages]


def test_it_is_said_who_is_there_and_who_is_waited_for(run_small, tmp_path, said):
    grid = Named(tmp_path)
    grid.silent = 3
    run_small(*QUICK, "strategy=fedavg", "rounds=1", grid=grid)
    silent = ", waiting for an answer of node 1000 (site-a), an answer of node 1001"
    assert said()[0].startswith(f"0 of 3 devices here{silent} (St Mary\\n)")
    assert "3 of 3 devices here (site-a, site-b (St Mary\\n), site-c)" in said()


def test_a_device_is_missed_until_it_is_back(run_small, tmp_path, said):
    grid = Named(tmp_path)
    grid.events[2] = lambda: grid.remove_node(1002)
    run_small(*QUICK, "strategy=fedavg", "rounds=3", grid=grid)
    here = "2 of 3 devices here (site-a, site-b (St Mary\\n))"
    assert f"{here}, going on without site-c since NOW" in said()
    assert any(": node: its device is not connected" in each for each in said())
    again = Named(tmp_path)
    again.remove_node(1002)
    run_small(*QUICK, "strategy=fedavg", "rounds=4", "resume=true", grid=again)
    assert f"{here}, waiting for site-c since NOW" in said(), "by an earlier round"
    run = run_small(
        *QUICK, "strategy=fedavg", "rounds=5", "resume=true", grid=Named(tmp_path)
    )
    assert "missing" not in said()[-1] and "3 of 3" in said()[-1]
    devices = {(row["client"], row.get("device")) for row in run.clients}
    assert devices == {("site-a", "site-a"), ("site-b", "St Mary\\n"), ("site-c", None)}


def test_one_more_than_expected_is_missed_too(run_small, tmp_path, said):
    grid = Named(tmp_path)
    grid.events[2] = lambda: grid.remove_node(1002)
    fewer = ["clients=2", "participants=2", "strategy=fedavg", "rounds=3"]
    run_small(*QUICK, *fewer, grid=grid)
    here = "2 of 2 devices here (site-a, site-b (St Mary\\n))"
    assert f"{here}, going on without site-c since NOW" in said()


def test_who_does_not_answer_is_named_and_so_is_its_failure(run_small, tmp_path, said):
    grid = Named(tmp_path)
    grid.events[1] = lambda: setattr(grid, "silent", 3)
    (tmp_path / "site-b" / "first.npz").unlink()
    run = run_small(*QUICK, "strategy=fedavg", "rounds=1", grid=grid)
    assert "round 1, train: waiting for site-a, site-c since NOW" in said()
    (failure,) = run.rounds[0]["failures"]
    assert (failure["client"], failure["device"]) == ("site-b", "St Mary\\n")
    assert any("client site-b (St Mary\\n), query: node: " in each for each in said())

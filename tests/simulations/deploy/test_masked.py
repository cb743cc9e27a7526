"""Secure sums among real processes over TLS: the numbers, and the loss of a device."""

from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from cfl_flower.communication.records import unpack_answers
from cfl_flower.engine.stages.secure_sums import NO_KEY
from simulations.engines.inprocess import InProcessGrid
from tests.cfl_flower.client.test_node_config import (
    HIGH,
    LOW,
    SITES,
    add_samples,
    node_config,
)
from tests.conftest import Run
from tests.simulations.deploy.loopback import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.devices]

PATIENCE = 900.0
"""Seconds: each message starts a process that imports torch."""

DEVICES = tuple(f"site-{letter}" for letter in "abcdef")
LOST = DEVICES[-1]
RUN = [*SITES, "strategy=fedavg", "clients=6", "participants=6", "rounds=4"]
SECURE = ["drift.rounds=[]", "strategy.local.epochs=1", "privacy.secure_sums=true"]


class Losing(InProcessGrid):
    """Devices in process, of whom one gives no answers from a round on."""

    def __init__(self, configs: list[dict[str, Any]], round: int) -> None:
        super().__init__(configs)
        self.round = round

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        asked = message.metadata
        if asked.message_type == "query.identify" or int(asked.group_id) < self.round:
            return reply
        if unpack_answers(reply.content)[0].client == LOST:
            del reply.content["answers"]
        return reply


def fill(root: Path) -> None:
    for place, name in enumerate(DEVICES):
        add_samples(root / name, "first", (LOW, HIGH)[place % 2])


def test_masked_devices_give_the_numbers_and_a_lost_one_costs_its_own_result(
    deployment, run_small, tmp_path
):
    deployment.make_keys(*DEVICES)
    deployment.register(*DEVICES)
    fill(deployment.root)
    for name in DEVICES:
        deployment.start_device(name)
    there = len(DEVICES)
    wait_for(lambda: deployment.online() == there, "the start of the devices", PATIENCE)
    folder = deployment.root / "run"
    command = ["simulations.deploy.submit", "loopback", *RUN, *SECURE]
    command += ["system.message_timeout=300", f"output_dir={folder}"]
    submitted = deployment.start("submit", *command)
    wait_for(lambda: rounds(folder) == 1, "the first round", PATIENCE)
    assert deployment.kill(f"private-key {deployment.keys}/{LOST}") == 1
    assert submitted.wait(PATIENCE) == 0

    run = Run(folder)
    assert not run.rounds[0]["failures"]
    trained = [
        {f["client"]: f for f in row["failures"] if f["phase"] == "train"}
        for row in run.rounds
    ]
    first = next(place for place, found in enumerate(trained) if found)
    for found in trained[first:]:
        assert {client: f["reason"] for client, f in found.items()} == {LOST: "node"}
    # It was in the group whose sum the others opened, and is in none any more.
    assert trained[first][LOST]["detail"] != NO_KEY
    assert trained[len(trained) - 1][LOST]["detail"] == NO_KEY
    assert run.rounds[first]["participants"] == there
    assert run.rounds[-1]["participants"] == there - 1
    assert run.rounds[-1]["left_out"] == 0

    other = tmp_path / "elsewhere"
    fill(other)
    nodes = [node_config(other, name) for name in DEVICES]
    quiet = run_small(*RUN, *SECURE, grid=Losing(nodes, first + 1), folder="quiet")
    losses = [row["loss"] for row in run.rounds]
    assert losses == [row["loss"] for row in quiet.rounds]


def rounds(folder: Path) -> int:
    path = folder / "rounds.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0

"""A device is killed midway: the run is as if just its lost results had failed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Error, Message

from cfl_flower.client.node_config import CLIENT_ID
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
from tests.simulations.deploy.test_end_to_end import PATIENCE, saved_round

pytestmark = [pytest.mark.slow, pytest.mark.devices]

DEVICES = {"site-a": LOW, "site-b": HIGH, "site-c": LOW}
KILLED = "site-c"
RUN = [*SITES, "strategy=fielding", "partition.groups=2", "rounds=4"]
EVERYTHING = [*RUN, "drift.rounds=[]", "strategy.local.epochs=1"]

Loss = tuple[int, str, Any]
"""Round, phase and client of a result that failed."""


class Replay(InProcessGrid):
    """Devices in process, some of whose answers are lost."""

    def __init__(self, configs: list[dict[str, Any]], lost: list[Loss]) -> None:
        super().__init__(configs)
        self.lost = lost

    def answer(self, message: Message) -> Message:
        told = message.metadata
        client = self.node_configs[told.dst_node_id][CLIENT_ID]
        if (int(told.group_id or 0), told.message_type, client) in self.lost:
            return Message(Error(2, "as it failed"), reply_to=message)
        return super().answer(message)


def losses(run: Run) -> list[Loss]:
    return sorted(
        (row["round"], failure["phase"], failure["client"])
        for row in run.rounds
        for failure in row["failures"]
    )


def fill(root: Path) -> None:
    for name, labels in DEVICES.items():
        add_samples(root / name, "first", labels)


def test_a_run_whose_device_dies_is_as_its_replay(deployment, run_small, tmp_path):
    deployment.make_keys(*DEVICES)
    deployment.register(*DEVICES)
    fill(deployment.root)
    started = {name: deployment.start_device(name) for name in DEVICES}
    wait_for(lambda: deployment.online() == 3, "the start of the devices", PATIENCE)
    folder = deployment.root / "run"
    more = ["system.message_timeout=300", f"output_dir={folder}"]
    command = ["simulations.deploy.submit", "loopback", *EVERYTHING, *more]
    submitted = deployment.start("submit", *command)
    wait_for(lambda: saved_round(folder) >= 1, "the first round", PATIENCE)
    assert deployment.kill(f"private-key {deployment.keys}/{KILLED}")

    def is_over() -> bool:
        # Refused until the SuperLink misses it, it ends: a service manager's part.
        if started[KILLED].poll() is not None:
            started[KILLED] = deployment.start_device(KILLED)
        return submitted.poll() is not None

    wait_for(is_over, "the end of the run", PATIENCE)
    assert submitted.returncode == 0, deployment.log("submit")
    run = Run(folder)
    lost = losses(run)
    assert {client for _, _, client in lost} == {KILLED}
    tests = Counter((row["round"], row["client"]) for row in run.clients)
    assert set(tests.values()) == {1}

    fill(tmp_path / "elsewhere")
    nodes = [node_config(tmp_path / "elsewhere", name) for name in DEVICES]
    replay = run_small(*RUN, grid=Replay(nodes, lost), folder="replay")
    assert losses(replay) == lost
    rows = [[{**row, "failures": 0} for row in each.numbers] for each in (run, replay)]
    assert rows[0] == rows[1]
    models = [[model.tolist() for model in each.state.models] for each in (run, replay)]
    assert models[0] == models[1]

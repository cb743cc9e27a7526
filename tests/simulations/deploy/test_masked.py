"""Secure sums among real processes over TLS: the numbers, and the loss of a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulations.deploy.loopback import Deployment, wait_for
from simulations.inprocess import InProcessGrid
from tests.cfl_flower.client.test_node_config import (
    HIGH,
    LOW,
    SITES,
    add_samples,
    node_config,
)
from tests.conftest import Run, Runner

pytestmark = [pytest.mark.slow, pytest.mark.devices]

PATIENCE = 900.0
"""Seconds: each message starts a process that imports torch."""

DEVICES = ("site-a", "site-b", "site-c", "site-d")
LOST = DEVICES[-1]
RUN = [*SITES, "strategy=fedavg", "clients=4", "participants=4", "rounds=4"]
SECURE = ["drift.rounds=[]", "strategy.local.epochs=1", "privacy.secure_sums=true"]


def fill(root: Path) -> None:
    for place, name in enumerate(DEVICES):
        add_samples(root / name, "first", (LOW, HIGH)[place % 2])


def test_masked_devices_give_the_numbers_and_a_lost_one_no_wrong_model(
    deployment: Deployment, run_small: Runner, tmp_path: Path
) -> None:
    deployment.make_keys(*DEVICES)
    deployment.register(*DEVICES)
    fill(deployment.root)
    for name in DEVICES:
        deployment.start_device(name)
    wait_for(lambda: deployment.online() == 4, "the start of the devices", PATIENCE)
    folder = deployment.root / "run"
    command = ["simulations.deploy.submit", "loopback", *RUN, *SECURE]
    command += ["system.message_timeout=60", f"output_dir={folder}"]
    submitted = deployment.start("submit", *command)
    wait_for(lambda: rounds(folder) == 1, "the first round", PATIENCE)
    assert deployment.kill(f"private-key {deployment.keys}/{LOST}") == 1
    assert submitted.wait(PATIENCE) == 0

    other = tmp_path / "elsewhere"
    fill(other)
    nodes = [node_config(other, name) for name in DEVICES]
    quiet = run_small(*RUN, *SECURE, grid=InProcessGrid(nodes), folder="quiet")
    run = Run(folder)
    assert run.rounds[0]["loss"] == quiet.rounds[0]["loss"]
    assert not run.rounds[0]["failures"]
    reasons = [
        {f["client"]: f["reason"] for f in row["failures"] if f["phase"] == "train"}
        for row in run.rounds
    ]
    # Once with its masks in the others' sum; then the three are a group of their own.
    lost = [round for round, found in enumerate(reasons) if "incomplete" in str(found)]
    assert len(lost) == 1
    assert reasons[lost[0]] == dict.fromkeys(DEVICES, "incomplete") | {LOST: "node"}
    assert reasons[-1] == {LOST: "node"}
    assert run.rounds[-1]["participants"] == 3
    assert run.rounds[-1]["left_out"] == 0


def rounds(folder: Path) -> int:
    """Return how many rounds are on record."""
    path = folder / "rounds.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0

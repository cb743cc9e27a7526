"""Real processes over TLS with node keys: drift, kills, late joins, an intruder."""

import json
from pathlib import Path

import pytest

from cfl_flower.client.upload_policy import TRIGGER
from cfl_flower.runs.lines import read_lines
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

PATIENCE = 600.0
"""Seconds, for machines that have other things to do."""

RUN = [*SITES, "clients=2", "participants=2", "strategy=fielding", "partition.groups=2"]
EVERYTHING = ["drift.rounds=[]", "strategy.local.epochs=1", *RUN]


def first_data(root: Path) -> None:
    add_samples(root / "site-a", "first", LOW)
    add_samples(root / "site-b", "first", HIGH)


def later_data(root: Path) -> None:
    for name, labels in (("site-a", HIGH), ("site-b", LOW)):
        (root / name / "first.npz").unlink()
        add_samples(root / name, "second", labels, most=120)
    add_samples(root / "site-c", "first", LOW)


def saved_round(folder: Path) -> int:
    header = folder / "checkpoint" / "checkpoint.json"
    return int(json.loads(header.read_text())["round"]) if header.exists() else 0


def test_a_run_survives_its_server_and_devices_that_drift_die_and_join(
    deployment, run_small, tmp_path
):
    """The numbers are those of a run in process that was interrupted by nothing."""
    devices = ("site-a", "site-b", "site-c")
    deployment.make_keys(*devices, "intruder")
    deployment.register(*devices)
    first_data(deployment.root)
    (deployment.root / "intruder").mkdir()
    for name in ("site-a", "site-b", "intruder"):
        deployment.start_device(name)
    folder = deployment.root / "run"
    command = ["simulations.deploy.submit", "loopback", *EVERYTHING]
    command += ["rounds=2", f"output_dir={folder}"]
    submitted = deployment.start("submit", *command)

    wait_for(lambda: saved_round(folder) == 1, "the first round", PATIENCE)
    assert deployment.kill("flower_superlink")
    assert deployment.kill("flwr-serverapp")
    assert deployment.kill(f"private-key {deployment.keys}/site-b") == 1
    later_data(deployment.root)
    deployment.start_superlink()
    deployment.start_device("site-c")
    returning = [deployment.start_device("site-b")]

    def all_are_back() -> bool:
        # A SuperNode that is missed only now is refused, and ends: a service manager
        # starts it again.
        if returning[-1].poll() is not None:
            returning.append(deployment.start_device("site-b"))
        joined = deployment.joined("site-b"), deployment.joined("site-c")
        return joined == (2, 1) and deployment.online() == 3

    # Site-a was left alone, and finds the SuperLink again by itself.
    wait_for(all_are_back, "the return of the devices", PATIENCE)
    # The command would wait for a minute, until the SuperLink misses the old ServerApp.
    submitted.kill()
    assert deployment.start("again", *command, "resume=true").wait(PATIENCE) == 0
    assert "resumed after round 1" in deployment.log("again")
    assert "Failed to initialize the connection" in deployment.log("intruder")
    assert "SuperNode ID" not in deployment.log("intruder")

    other = tmp_path / "elsewhere"
    other.mkdir()
    first_data(other)
    grid = InProcessGrid([node_config(other, f"site-{name}") for name in "ab"])
    run_small(*RUN, "rounds=1", grid=grid, folder="reference")
    later_data(other)
    grid.add_node(node_config(other, "site-c"))
    reference = run_small(
        *RUN, "rounds=2", "resume=true", grid=grid, folder="reference"
    )
    run = Run(folder)
    assert run.numbers == reference.numbers, "each result counts once, none is lost"
    assert [row["drifted"] for row in run.rounds] == [0, 2]
    assert [row["moved"] for row in run.rounds] == [0, 2]
    assert {row["client"] for row in run.clients if row["round"] == 2} == set(devices)
    assert (folder / "summary.json").exists()


UPLOADS = [
    *(*SITES, "clients=2", "participants=2", "rounds=4", "drift.rounds=[]"),
    *("strategy=local_async", "strategy.local.epochs=1"),
    *("strategy.pretraining.epochs=1", "partition.groups=2"),
]


def test_a_killed_server_goes_on_by_itself_without_rounds_too(deployment):
    root, devices = deployment.root, ("site-a", "site-b")
    deployment.make_keys(*devices)
    deployment.register(*devices)
    for name, labels in zip(devices, (LOW, HIGH), strict=True):
        add_samples(root / name, "first", labels)
        add_samples(root / "public" / name, "all", labels)
        deployment.start_device(name)
    folder = root / "run"
    command = deployment.start(
        "submit",
        *("simulations.deploy.submit", "loopback", *UPLOADS, "--restarts", "1"),
        *(f"strategy.public_dir={root / 'public'}", f"output_dir={folder}"),
    )
    wait_for(lambda: saved_round(folder) >= 1, "the first round", PATIENCE)
    before = saved_round(folder)
    assert deployment.kill("flwr-serverapp")
    # A minute passes until the SuperLink misses it.
    assert command.wait(PATIENCE) == 0, deployment.log("submit")
    said = deployment.log("submit")
    assert "going on from its checkpoint" in said
    assert "resumed after round" in said
    run = Run(folder)
    assert before < 4
    assert [row["round"] for row in run.rounds] == [1, 2, 3, 4], "each counts once"
    assert {row["client"] for row in run.clients} == set(devices)
    assert (folder / "summary.json").exists()


CCFL = [
    *(*SITES, "clients=3", "participants=1", "rounds=10", "drift.rounds=[]"),
    *("strategy=ccfl", "strategy.local.epochs=1", "strategy.pretraining.epochs=1"),
    *("partition.groups=2", "strategy.policy.wait=15", "strategy.policy.poll=0.5"),
]
"""Every upload is a round, so the files tell the order."""


def test_devices_upload_when_they_want_to_leave_and_join(deployment):
    root, devices = deployment.root, ("site-a", "site-b", "site-c", "site-d")
    deployment.make_keys(*devices)
    deployment.register(*devices)
    for name, labels in zip(devices, (LOW, HIGH, LOW, HIGH), strict=True):
        add_samples(root / name, "first", labels)
    for name, labels in (("high", HIGH), ("low", LOW)):
        add_samples(root / "public" / name, "all", labels)
    for name in devices[:3]:
        deployment.start_device(name)
    folder = root / "run"
    public = f"strategy.public_dir={root / 'public'}"
    command = deployment.start(
        "submit",
        "simulations.deploy.submit",
        *("loopback", *CCFL, public, f"output_dir={folder}"),
    )

    def uploads() -> list[str]:
        return [str(row["client"]) for row in read_lines(folder / "clients.jsonl")]

    wait_for(lambda: len(uploads()) >= 3, "the first uploads", 300)
    # All hold their next one now; the last is asked for first, twice.
    first = uploads()
    assert sorted(first[:3]) == list(devices[:3])
    for count in (4, 5):
        (root / first[2] / TRIGGER).touch()
        wait_for(lambda count=count: len(uploads()) >= count, "an upload", 120)
    assert deployment.kill(f"--client {first[0]}", f"/{first[0]}") >= 1
    deployment.start_device("site-d")
    wait_for(lambda: "site-d" in uploads(), "the upload of who came late", 120)
    for name in devices:
        (root / name / TRIGGER).touch()
    assert command.wait(300) == 0, deployment.log("submit")
    run = Run(folder)
    assert [row["round"] for row in run.rounds] == list(range(1, 11))
    after = [row["client"] for row in run.clients]
    assert after[3] == first[2], "uploads are not taken in in the order of sending"
    assert first[0] not in after[6:]
    assert run.rounds[-1]["cluster_sizes"] is not None
    assert sum(run.rounds[-1]["cluster_sizes"]) == 4

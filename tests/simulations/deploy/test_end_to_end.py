"""Real processes over TLS with node keys: drift, kill -9, late join, an intruder."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfl_flower.inprocess import InProcessGrid
from simulations.deploy import keys
from tests.cfl_flower.test_site import HIGH, LOW, SITES, add_samples, node_config
from tests.conftest import Run, Runner
from tests.simulations.deploy.conftest import Deployment, wait_for

pytestmark = pytest.mark.slow

RUN = [*SITES, "clients=2", "participants=2", "strategy=fielding", "partition.groups=2"]
EVERYTHING = ["drift.rounds=[]", "strategy.local.epochs=1", *RUN]


def first_data(root: Path) -> None:
    add_samples(root / "site-a", "first", LOW)
    add_samples(root / "site-b", "first", HIGH)


def later_data(root: Path) -> None:
    (root / "site-a" / "first.npz").unlink()
    add_samples(root / "site-a", "second", HIGH, most=120)
    add_samples(root / "site-c", "first", LOW)


def test_a_run_survives_its_server_and_devices_that_drift_and_join(
    deployment: Deployment, run_small: Runner, tmp_path: Path
) -> None:
    """The numbers are those of a run in process that was interrupted by nothing."""
    devices = ("site-a", "site-b", "site-c")
    assert keys.main([str(deployment.keys), "--device", *devices, "intruder"]) == 0
    deployment.register(*devices)
    first_data(deployment.root)
    (deployment.root / "intruder").mkdir()
    for name in ("site-a", "site-b", "intruder"):
        deployment.start_device(name)
    folder = deployment.root / "run"
    door = deployment.start(
        "submit",
        "simulations.deploy.submit",
        *("loopback", *EVERYTHING, "rounds=2", f"output_dir={folder}"),
        *("--restarts", "2"),
    )
    header = folder / "checkpoint" / "checkpoint.json"
    wait_for(header.exists, "the first round", 300)
    assert deployment.kill("flower-superlink", "flwr-serverapp") >= 2
    later_data(deployment.root)
    deployment.start_device("site-c")
    deployment.start_superlink()
    assert door.wait(500) == 0, deployment.log("submit")
    assert "resumed after round 1" in deployment.log("submit")
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
    assert [row["drifted"] for row in run.rounds] == [0, 1]
    assert [row["moved"] for row in run.rounds] == [0, 1]
    assert {row["client"] for row in run.clients if row["round"] == 2} == set(devices)
    assert (folder / "summary.json").exists()

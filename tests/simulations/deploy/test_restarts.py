"""The ServerApp alone is killed midway: the command goes on from the checkpoint."""

import pytest

from tests.cfl_flower.client.test_node_config import HIGH, LOW, SITES, add_samples
from tests.conftest import Run
from tests.simulations.deploy.loopback import wait_for
from tests.simulations.deploy.test_end_to_end import PATIENCE, saved_round

pytestmark = [pytest.mark.slow, pytest.mark.devices]

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

"""Methods in a Flower app of somebody else's, on plain SuperNodes."""

import re
import shutil
from pathlib import Path

import pytest

from simulations.engines.superlink import free_ports
from tests.simulations.deploy.loopback import CONNECTION, Deployment, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.devices]

APP = Path(__file__).parents[3] / "docs" / "baselines" / "fielding"
METHODS = ("Fielding", "FlexCFL", "IFCA")
"""One whose nodes report, one with a cold start, one whose nodes choose: each task is a
process that imports torch, so that ten methods take half an hour."""
NODES = 3
ROUNDS = 2


def start_node(deployment: Deployment, number: int) -> None:
    """Start a SuperNode as Flower's users do: it knows its partition, and no more."""
    name = f"node-{number}"
    deployment.start(
        name,
        "simulations.deploy.flower_supernode",
        *("--superlink", deployment.address),
        *("--root-certificates", str(deployment.keys / "ca.pem")),
        *("--auth-supernode-private-key", str(deployment.keys / name)),
        *("--node-config", f"partition-id={number} num-partitions={NODES}"),
        *("--port", str(free_ports(1)[0])),
    )


def test_methods_run_on_supernodes_one_of_which_dies(deployment):
    names = [f"node-{number}" for number in range(NODES)]
    deployment.make_keys(*names)
    deployment.register(*names)
    for number in range(NODES):
        start_node(deployment, number)
    wait_for(lambda: deployment.online() == NODES, "the nodes' arrival")
    app = deployment.root / "app"
    shutil.copytree(APP, app)
    asked = f"strategy='{','.join(METHODS)}' num-clients={NODES} drift-rounds='2'"
    asked += f" num-server-rounds={ROUNDS} fraction-train=1.0 local-epochs=1"
    run = ("run", str(app), CONNECTION, "--stream", "--run-config", asked)
    submitted = deployment.start("run", "flwr.cli.app", *run)
    wait_for(lambda: "[ROUND 2/2]" in deployment.log("run"), "a round", 240.0)
    deployment.kill("node-2")
    # Flower lets nobody in under a key that it still sees online.
    wait_for(lambda: deployment.online() < NODES, "the loss of a node", 240.0)
    start_node(deployment, 2)
    wait_for(lambda: submitted.poll() is not None, "the end of the run", 900.0)
    said = deployment.log("run")
    rows = re.findall(r"^\| (\w+) \| (\d+) \|.* ([\d.]+) \|$", said, re.M)
    assert [name for name, _, _ in rows] == list(METHODS), said
    for name, clusters, mean in rows:
        assert 1 <= int(clusters) <= NODES, name
        assert 5 < float(mean) <= 100, name

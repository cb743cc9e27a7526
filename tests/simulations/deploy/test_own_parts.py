"""A network of the user's own on real devices, one of which does not allow it."""

import json

import pytest

from cfl_flower.environment.plugins import ALLOWED
from simulations.new import write_skeleton
from tests.cfl_flower.client.test_node_config import HIGH, LOW, SITES, add_samples
from tests.simulations.deploy.loopback import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.devices]


def test_a_device_trains_a_network_that_its_owner_allows(deployment):
    root, variables = deployment.root, deployment.variables
    write_skeleton("model", "own_model", root / "own")
    deployment.make_keys("site-a", "site-b")
    deployment.register("site-a", "site-b")
    add_samples(root / "site-a", "first", LOW)
    add_samples(root / "site-b", "first", HIGH)
    deployment.start_device("site-b")
    variables[ALLOWED] = "own_model"
    deployment.start_device("site-a")
    del variables[ALLOWED]
    asked = [*SITES, "clients=2", "participants=2", "strategy=fedavg", "drift=none"]
    own = ["model._target_=own_model.OwnModel", "+model.hidden=8", "rounds=1"]
    line = [*asked, *own, f"output_dir={root / 'run'}"]
    submitted = deployment.start(
        "submit", "simulations.deploy.submit", "loopback", *line
    )
    wait_for(lambda: submitted.poll() is not None, "the end of the run", 240.0)
    assert submitted.returncode == 0, deployment.log("submit")
    (row,) = map(json.loads, (root / "run" / "rounds.jsonl").read_text().splitlines())
    assert row["participants"] == 1
    (failure,) = row["failures"]
    assert failure["client"] == "site-b"
    assert failure["detail"].endswith(
        "ConfigError; its text is in the device's own log"
    )
    assert "not allowed; set CFL_PLUGINS=own_model where" in deployment.log("site-b")

"""Devices as their container and unit run them: no root, and a read-only system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulations.deploy.loopback import Deployment, wait_for
from simulations.superlink import PROJECT, free_ports
from tests.cfl_flower.client.test_node_config import SITES
from tests.simulations.deploy.test_end_to_end import PATIENCE, first_data

NOBODY = 54321
"""A user and group without a name."""

# What stays readable is bound below /mnt before /tmp, and perhaps it, is hidden.
CONFINE = """
mount -t tmpfs none /mnt
cd /mnt
for each in project python keys data state; do
    mkdir $each
    eval mount --bind \\$$each $each
done
mount -o remount,bind,ro project
mount -o remount,bind,ro data
mount -o remount,bind,ro keys
mount -o remount,ro,bind /
for each in /tmp /dev/shm; do mount -t tmpfs -o mode=1777 none $each; done
case $python in /root/*)
    mount -t tmpfs none /root
    mkdir -p $python
    mount --bind python $python
    ;;
esac
mount -o remount,ro /mnt
exec setpriv --reuid $user --regid $user --clear-groups --no-new-privs \\
    --bounding-set=-all --inh-caps=-all "$@"
"""

CAN = ["unshare", "--mount", "true"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.devices,
    pytest.mark.skipif(
        sys.platform != "linux" or subprocess.run(CAN, check=False).returncode != 0,
        reason="needs a Linux on which mounts can be made",
    ),
]


def start_confined(deployment: Deployment, name: str) -> Path:
    """Start a device that can write its state and /tmp alone; return its state."""
    root, state = deployment.root, deployment.root / f"home-{name}"
    state.mkdir()
    for path in (state, deployment.keys / name):
        shutil.chown(path, NOBODY, NOBODY)
    variables = {
        "project": str(PROJECT),
        "python": sys.base_prefix,
        "keys": str(deployment.keys),
        "data": str(root / name),
        "state": str(state),
        "user": str(NOBODY),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": "/mnt/project",
        # As the image has them.
        "HOME": "/mnt/state",
        "LOGNAME": "cfl-flower",
        "MARK": str(root),
    }
    device = [sys.executable, "-m", "simulations.deploy.supernode", deployment.address]
    device += ["/mnt/keys", "--client", name, "--data-dir", "/mnt/data"]
    device += ["--home", "/mnt/state", "--port", str(free_ports(1)[0])]
    with (root / f"{name}.log").open("w") as log:
        subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", CONFINE, "confine", *device],
            env=variables,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return state


def test_a_device_needs_no_root_and_writes_its_state_alone(
    deployment: Deployment,
) -> None:
    names = ("site-a", "site-b")
    deployment.make_keys(*names)
    deployment.register(*names)
    first_data(deployment.root)
    states = [start_confined(deployment, name) for name in names]
    wait_for(lambda: deployment.online() == 2, "the start of the devices", PATIENCE)
    folder = deployment.root / "run"
    command = [*SITES, "clients=2", "participants=2", "strategy=fielding", "rounds=2"]
    command.append(f"output_dir={folder}")
    submitted = deployment.start(
        "submit", "simulations.deploy.submit", "loopback", *command
    )
    assert submitted.wait(PATIENCE) == 0, deployment.log("submit")
    for name, state in zip(names, states, strict=True):
        assert "Read-only file system" not in deployment.log(name)
        written = [path for path in state.rglob("*") if path.is_file()]
        assert written
        assert {path.stat().st_uid for path in written} == {NOBODY}

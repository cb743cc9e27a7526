"""As containers and units run them: no root, and a system that is read-only."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulations.engines.superlink import PROJECT, free_ports
from tests.cfl_flower.client.test_node_config import SITES
from tests.simulations.deploy.loopback import Deployment, wait_for
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
    pytest.mark.skipif(
        Path(sys.executable).is_relative_to("/tmp"),
        reason="hides /tmp, where this environment is",
    ),
]


def start_confined(
    deployment: Deployment, name: str, state: Path, data: Path, *arguments: str
) -> None:
    """Start a module that can write the folder of its state and /tmp alone."""
    state.mkdir(exist_ok=True)
    for path in (state, *state.rglob("*")):
        shutil.chown(path, NOBODY, NOBODY)
    variables = {
        "project": str(PROJECT),
        "python": sys.base_prefix,
        "keys": str(deployment.keys),
        "data": str(data),
        "state": str(state),
        "user": str(NOBODY),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": "/mnt/project",
        # As the image has them.
        "HOME": "/mnt/state",
        "LOGNAME": "cfl-flower",
        "MARK": str(deployment.root),
    }
    command = [sys.executable, "-m", *arguments, "--home", "/mnt/state"]
    with (deployment.root / f"{name}.log").open("a") as log:
        subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", CONFINE, "confine", *command],
            env=variables,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def test_neither_needs_root_nor_writes_elsewhere(deployment):
    names, root = ("site-a", "site-b"), deployment.root
    deployment.make_keys(*names)
    deployment.register(*names)
    first_data(root)
    for name in (*names, "server.key"):
        shutil.chown(deployment.keys / name, NOBODY, NOBODY)

    assert deployment.kill("flower_superlink")
    state, port = root / "superlink", str(deployment.port)
    server = "simulations.deploy.superlink", "/mnt/keys", "--port", port
    start_confined(deployment, "superlink", state, root, *server)
    for name in names:
        device = "simulations.deploy.supernode", deployment.address, "/mnt/keys"
        device += "--client", name, "--data-dir", "/mnt/data"
        device += "--port", str(free_ports(1)[0])
        start_confined(deployment, name, root / f"home-{name}", root / name, *device)
    wait_for(lambda: deployment.online() == 2, "the start of the devices", PATIENCE)

    command = [*SITES, "clients=2", "participants=2", "strategy=fielding", "rounds=2"]
    submit = "simulations.deploy.submit", "loopback", *command, "output_dir=run"
    submitted = deployment.start("submit", *submit)
    assert submitted.wait(PATIENCE) == 0, deployment.log("submit")
    assert (root / "superlink/run/summary.json").is_file()
    for name in names:
        written = list(root.glob(f"home-{name}/state/**/*"))
        assert written
        assert {path.stat().st_uid for path in written} == {NOBODY}
    for name in ("superlink", *names):
        assert "Read-only file system" not in deployment.log(name)

"""CCFL on real SuperNodes: uploads in any order, one device is killed, one joins."""

import pytest

from cfl_flower.client.upload_policy import TRIGGER
from cfl_flower.runs.lines import read_lines
from tests.cfl_flower.client.test_node_config import HIGH, LOW, SITES, add_samples
from tests.conftest import Run
from tests.simulations.deploy.loopback import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.devices]

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

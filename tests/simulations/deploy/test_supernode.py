"""A device whose connection breaks off ends, and is let in when it is started again."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.cfl_flower.client.test_node_config import LOW, add_samples
from tests.simulations.deploy.line import Line
from tests.simulations.deploy.loopback import Deployment, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.devices]

MISSED = 180.0
"""Seconds within which the SuperLink misses a device, which is let in only then."""


def test_a_device_that_is_cut_off_ends_for_whoever_starts_it_again(
    deployment: Deployment,
) -> None:
    deployment.make_keys("site-a")
    deployment.register("site-a")
    add_samples(deployment.root / "site-a", "first", LOW, most=20)
    with closing(Line(deployment.port)) as line:
        device = deployment.start_device("site-a", port=line.port)
        wait_for(lambda: deployment.joined("site-a"), "the start of the device")
        line.cut()
        wait_for(lambda: device.poll() is not None, "the end of the device", MISSED)
        assert device.returncode == 1
        assert not deployment.processes("flwr-clientapp")
        line.mend()

        def is_back() -> bool:
            nonlocal device
            if device.poll() is not None:
                device = deployment.start_device("site-a", port=line.port)
            return deployment.joined("site-a") == 2

        wait_for(is_back, "the return of the device", MISSED)

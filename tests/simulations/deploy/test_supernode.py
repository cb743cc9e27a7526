"""A device whose connection breaks off ends, and is let in when it is started again."""

from contextlib import closing

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.cfl_flower.client.test_node_config import LOW, add_samples
from tests.simulations.deploy.line import Line
from tests.simulations.deploy.loopback import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.devices]

MISSED = 180.0
"""Seconds within which the SuperLink misses a device, which is let in only then."""


def test_a_device_that_is_cut_off_ends_for_whoever_starts_it_again(deployment):
    deployment.make_keys("site-a")
    deployment.register("site-a")
    add_samples(deployment.root / "site-a", "first", LOW, most=20)
    with closing(Line(deployment.port)) as line:
        device = deployment.start_device("site-a", port=line.port)
        wait_for(lambda: deployment.joined("site-a"), "the start of the device")
        line.cut()
        wait_for(lambda: device.poll() is not None, "the end of the device", MISSED)
        assert device.returncode == 1
        said = "the connection to the SuperLink was given up"
        wait_for(lambda: said in deployment.log("site-a"), "its last words")
        assert not deployment.processes("flwr-clientapp")
        line.mend()

        def is_back() -> bool:
            nonlocal device
            if device.poll() is not None:
                device = deployment.start_device("site-a", port=line.port)
            return deployment.joined("site-a") == 2

        wait_for(is_back, "the return of the device", MISSED)


def test_a_device_for_signed_apps_runs_no_other(deployment):
    deployment.make_keys("site-a")
    deployment.register("site-a")
    add_samples(deployment.root / "site-a", "first", LOW, most=20)
    signer = ed25519.Ed25519PrivateKey.generate().public_key()
    form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    trusted = deployment.root / "trusted.yaml"
    trusted.write_text(f"fpk_1: {signer.public_bytes(*form).decode()}\n")
    more = ("--", "--trusted-entities", str(trusted))
    deployment.start_device("site-a", more=more)
    wait_for(lambda: deployment.joined("site-a"), "the start of the device")
    run = ("strategy=fedavg", "dataset=folder", "dataset.shape=[1,8,8]", "clients=1")
    where = ("participants=1", "drift=none", f"output_dir={deployment.root / 'run'}")
    deployment.start("submit", "simulations.deploy.submit", "loopback", *run, *where)

    def is_refused() -> bool:
        return "The FAB could not be verified" in deployment.log("site-a")

    wait_for(is_refused, "the app")
    assert not list((deployment.root / "home-site-a").glob("state/*"))
    assert not list((deployment.root / "home-site-a").glob("apps/*"))

"""Health, metrics and logs of real processes, and a certificate renewed meanwhile."""

import json
import ssl

import pytest

from simulations.deploy.logs import COLOURS
from simulations.engines.superlink import PROJECT, free_ports
from tests.cfl_flower.client.test_node_config import HIGH, LOW, SITES, add_samples
from tests.simulations.deploy.loopback import wait_for
from tests.simulations.deploy.test_end_to_end import PATIENCE
from tests.simulations.deploy.test_health import families, page

pytestmark = [pytest.mark.slow, pytest.mark.devices]

OTHER = PROJECT / "build" / "flwr-1.42.0"
"""Another version of Flower for a device, as `make test-flwr` puts it there."""

RUN = [*SITES, "clients=2", "participants=2", "strategy=fedavg", "rounds=2"]


def test_a_fleet_says_how_it_is_while_its_certificate_is_renewed(deployment):
    pytest.importorskip("prometheus_client")
    assert deployment.kill("flower_superlink")
    server, one, two = free_ports(3)
    deployment.make_keys("site-a", "site-b")
    deployment.start_superlink("--health", f"127.0.0.1:{server}")
    deployment.register("site-a", "site-b")
    for name, labels, port, form in (
        ("site-a", LOW, one, "json"),
        ("site-b", HIGH, two, "text"),
    ):
        add_samples(deployment.root / name, "first", labels)
        more = ("--health", f"127.0.0.1:{port}", "--log", form)
        deployment.start_device(name, str(OTHER) if name == "site-b" else "", more=more)
    for port in (server, one, two):
        wait_for(lambda port=port: page(port) == (200, "ok\n"), "health", PATIENCE)
    folder = deployment.root / "run"
    submitted = deployment.start(
        "submit", "simulations.deploy.submit", "loopback", *RUN, f"output_dir={folder}"
    )
    wait_for((folder / "config.yaml").exists, "the run", PATIENCE)
    old = (deployment.keys / "server.pem").read_text()
    for name in ("server.pem", "server.key"):
        (deployment.keys / name).unlink()
    deployment.make_keys()
    new = (deployment.keys / "server.pem").read_text()
    assert submitted.wait(PATIENCE) == 0, deployment.log("submit")

    def renewed() -> bool:
        shown = ssl.get_server_certificate(("127.0.0.1", deployment.port))
        return shown.split() == new.split() != old.split()

    wait_for(renewed, "the renewal", 90.0)
    found = families(page(server, "/metrics")[1])
    assert found["healthy"] == {"": 1.0}
    assert found["device_online"] == {"device=site-a": 1.0, "device=site-b": 1.0}
    assert found["round"] == {"": 2.0}
    assert found["client_last_round"] == {"client=site-a": 2.0, "client=site-b": 2.0}
    for port in (one, two):
        sent = families(page(port, "/metrics")[1])["messages_total"]
        assert sent["type=train"] == sent["type=evaluate"] == 2.0
    rows = [json.loads(row) for row in (folder / "clients.jsonl").open()]
    assert all(row["device"] == row["client"] for row in rows)

    home = deployment.root / "superlink"
    assert [*(home / "watched").iterdir()]
    for path in (home, home / "watched", home / "state.db"):
        assert not path.stat().st_mode & 0o077, "nobody else's"

    assert deployment.kill("flower_superlink")
    assert page(one)[0] == 503
    wait_for(
        lambda: "Connection attempt failed, retrying" in deployment.log("site-a"),
        "a vain call",
        PATIENCE,
    )
    deployment.start_superlink()
    wait_for(lambda: page(one) == (200, "ok\n"), "health", PATIENCE)
    for name in ("superlink", "site-a"):
        for line in deployment.log(name).splitlines():
            assert json.loads(line).keys() == {"time", "level", "message"}
    for name in ("site-b", "submit"):
        assert not COLOURS.search(deployment.log(name))

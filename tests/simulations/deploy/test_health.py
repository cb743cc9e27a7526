"""What is said at the address of `--health`, and the form of what is logged."""

import json
import os
import re
import shlex
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
import yaml
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from cfl_flower.runs.console import WATCHED
from simulations.deploy import flower_superlink, health, keys, superlink
from simulations.engines.superlink import PROJECT, free_ports
from tests.cfl_flower.client.test_node_config import SITES, Sites

DEPLOY = PROJECT / "simulations" / "deploy"


# urllib's own opener keeps the proxies of whoever asked first.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def page(port: int, path: str = "/health") -> tuple[int, str]:
    """Return the status and the text of a page; 0 if nobody answers."""
    try:
        with OPENER.open(f"http://127.0.0.1:{port}{path}") as answer:
            assert answer.headers["Content-Type"] == health.FORMAT
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError as error:
        return 0, str(error)


@pytest.fixture
def told():
    """Return a function that serves what is wrong and samples, and returns a port."""
    servers = []

    def serve(wrong: str = "", samples: list[health.Sample] = []) -> int:  # noqa: B006
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        servers.append(health.serve(address, lambda: wrong, lambda: samples))
        return port

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def asked_by_unit(port: int) -> int:
    """Return the exit code of what the unit that asks for health starts."""
    text = (DEPLOY / "systemd" / "cfl-flower-health@.service").read_text()
    (line,) = re.findall("^ExecStart=(.*)$", text, re.MULTILINE)
    words = shlex.split(line.replace("%i", str(port)))
    return subprocess.run([sys.executable, *words[1:]], check=False).returncode


def test_who_asks_hears_what_is_wrong(told):
    well, ill = told(), told("https://superlink: [Errno 111] Connection refused")
    assert page(well) == (200, "ok\n")
    assert page(ill) == (503, "https://superlink: [Errno 111] Connection refused\n")
    assert asked_by_unit(well) == 0
    assert asked_by_unit(ill) != 0


def test_an_address_that_cannot_be_used_starts_nothing(told, tmp_path, capsys):
    assert keys.main([str(tmp_path), "--host", "127.0.0.1"]) == 0
    taken = f"127.0.0.1:{told()}"
    wrong = "0.0.0.0:0 9100 127.0.0.1: 127.0.0.1:99999 http://127.0.0.1:1"
    for odd in (taken, *wrong.split()):
        command = [str(tmp_path), "--home", str(tmp_path / "home"), "--health", odd]
        assert superlink.main(command) == 2
        assert "cfl-flower error: --health=" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_containers_ask_where_their_process_answers():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        address = shlex.split(service["command"])[-1]
        assert f"http://{address}/health" in service["healthcheck"]["test"][-1]


def test_another_machine_must_prove_who_it_is_and_a_proxy_may_hide_it(told, tmp_path):
    (closed,) = free_ports(1)
    authority = ssl.get_default_verify_paths().openssl_cafile
    refused = health.why_not(f"https://127.0.0.1:{closed}/health", authority)
    assert "refused" in refused
    assert health.why_not(f"http://127.0.0.1:{told()}/hidden") == ""
    assert health.why_not(f"http://127.0.0.1:{told('away')}/health").endswith(": 503")
    assert health.why_not("https://127.0.0.1:1/health", str(tmp_path / "ca.pem"))


def families(text: str) -> dict[str, dict[str, float]]:
    """Return what Prometheus' own parser reads: values by name and labels."""
    parser = pytest.importorskip("prometheus_client.parser")
    found: dict[str, dict[str, float]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sorted(sample.labels.items())
            told = [f"{k}={v}" for k, v in labels if k not in ("run", "node")]
            name = sample.name.removeprefix("cfl_flower_")
            found.setdefault(name, {})[",".join(told)] = sample.value
    return found


def make_nodes(database: Path) -> None:
    """Register devices with Flower's own database, of which the first is online."""
    store = ObjectStoreFactory(str(database))
    state = LinkStateFactory(str(database), NoOpFederationManager(), store).state()
    for name in ("site-a", 'St "Mary"\n', None):
        node = state.create_node("", "", f"key of {name}".encode(), 30.0, name=name)
        if name == "site-a":
            assert state.activate_node(node, 30.0)


def test_prometheus_reads_the_numbers_of_devices_and_runs(
    told, run_small, tmp_path, monkeypatch
):
    watched = tmp_path / "watched"
    watched.mkdir()
    monkeypatch.setenv(WATCHED, str(watched))
    grid = Sites(tmp_path)
    grid.events[2] = lambda: grid.remove_node(1002)
    run = run_small(*SITES, "strategy=fedavg", "rounds=2", grid=grid)
    # A run whose folder is gone tells nothing.
    (watched / "gone").write_text(str(tmp_path / "gone"))
    make_nodes(tmp_path / "state.db")
    numbers = partial(flower_superlink.samples, tmp_path / "state.db", watched)
    pytest.importorskip("prometheus_client")
    text = health.exposition([("healthy", {}, 1.0), *numbers()])
    found = families(text)
    assert found["healthy"] == {"": 1.0}
    online = {"device=site-a": 1.0, 'device=St "Mary"\n': 0.0, "device=": 0.0}
    assert found["device_online"] == online
    assert found["round"] == {"": 2.0}
    assert found["accuracy"][""] == pytest.approx(run.rounds[-1]["accuracy"])
    up = sum(row["bytes_up"] for row in run.rounds)
    assert found["bytes_total"]["direction=up"] == up
    lost = {"phase=train,reason=node": 1.0, "phase=evaluate,reason=node": 1.0}
    assert found["failures_total"] == lost
    last = {"client=site-a": 2.0, "client=site-b": 2.0, "client=site-c": 1.0}
    assert found["client_last_round"] == last
    written = (run.folder / "rounds.jsonl").stat().st_mtime
    assert found["last_round_timestamp_seconds"][""] == written
    text = (PROJECT / "docs" / "how-to" / "operate.md").read_text()
    listed = set(re.findall(r"`cfl_flower_(\w+)`", text))
    assert {*found, "epsilon", "messages_total"} == listed
    port = told(samples=[("messages_total", {"type": "train"}, 3)])
    status, text = page(port, "/metrics")
    assert status == 200
    assert families(text)["messages_total"] == {"type=train": 3.0}


def test_a_damaged_run_is_said_and_costs_the_page_alone(tmp_path):
    pytest.importorskip("prometheus_client")
    (tmp_path / "rounds.jsonl").write_text('{"round": 1}\n')
    damaged = partial(flower_superlink.run_samples, tmp_path, 0.0)
    assert health.answer("/health", "", damaged) == (200, "ok")
    status, text = health.answer("/metrics", "", damaged)
    assert status == 500
    assert "rounds.jsonl cannot be read" in text
    nowhere = partial(flower_superlink.device_samples, tmp_path / "nowhere.db")
    said = (500, "unable to open database file")
    assert health.answer("/metrics", "", nowhere) == said


SAYS = r"""
import os, subprocess, sys
from simulations.deploy import logs
logs.begin()
print("\x1b[92mINFO \x1b[0m:      a \"quoted\" name", flush=True)
print("2026-11-27T14:03:05.123Z WARNING [uvicorn.error] slow", file=sys.stderr)
subprocess.run([sys.executable, "-c", "print('of a child'); 1/0"])
os.write(1, b"caf\xc3\xa9 \xff\n\n\r\n" + b"x" * 100_000 + b"\nno end")
os._exit(3)
"""


@pytest.mark.parametrize("form", ["auto", "json", "text"])
def test_all_that_is_said_has_one_form(form):
    variables = {**os.environ, "CFL_FLOWER_LOG": form, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", SAYS], env=variables, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (3, b"")
    lines = done.stdout.decode().splitlines()
    assert "\x1b" not in done.stdout.decode()
    if form == "text":
        assert lines[0] == 'INFO :      a "quoted" name'
        assert lines[-1] == "no end"
        return
    events = [json.loads(line) for line in lines]
    assert events[0].keys() == {"time", "level", "message"}
    pairs = [(event["level"], event["message"]) for event in events]
    assert pairs[0] == ("INFO", 'a "quoted" name')
    assert ("WARNING", "[uvicorn.error] slow") in pairs
    assert (None, "of a child") in pairs
    assert (None, "ZeroDivisionError: division by zero") in pairs
    last = ["café \ufffd", "x" * 100_000, "no end"]
    assert pairs[-3:] == [(None, each) for each in last]


def shown(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port))


def test_a_renewed_certificate_is_taken_without_a_stop(tmp_path, capsys):
    made = [str(tmp_path), "--host", "127.0.0.1"]
    assert keys.main(made) == 0
    files = [tmp_path / "server.pem", tmp_path / "server.key"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    renew = partial(flower_superlink.renew, [context], *map(str, files))
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    caller, _ = listener.accept()
                    with suppress(OSError):
                        context.wrap_socket(caller, server_side=True).close()

        Thread(target=answer, daemon=True).start()
        port = listener.getsockname()[1]
        first = shown(port)
        for file in files:
            file.unlink()
        renew()
        assert "server.pem was not taken: " in capsys.readouterr().err
        assert keys.main(made) == 0
        assert shown(port) == first
        renew()
        second = shown(port)
        assert second != first
        assert second.split() == files[0].read_text().split()
        files[1].write_text("no key")
        renew()
        assert shown(port) == second, "half of a pair is not taken"

"""The run command on real Ray, through `flwr run` on a private SuperLink."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from cfl_flower.errors import ERROR_MARK
from simulations.engines import superlink
from simulations.engines.superlink import PROJECT, private_superlink
from tests.conftest import WHOLE, run_command
from tests.simulations.engines.test_processes import KINDS, METHODS

pytestmark = [pytest.mark.slow, pytest.mark.ray]

RUN = ["strategy=fielding", "clients=20", "participants=10", "rounds=12"]
RUN += ["drift.rounds=[6]", "strategy.local.epochs=2"]
TIMES = ("seconds", "virtual_seconds")


def command(folder: Path, *options: str) -> list[str]:
    module = [sys.executable, "-m", "simulations.run"]
    return [*module, *RUN, "engine=ray", f"output_dir={folder}", *options]


def numbers(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for name in ("rounds.jsonl", "clients.jsonl"):
        for line in (folder / name).read_text().splitlines():
            row = json.loads(line)
            rows.append({k: v for k, v in row.items() if k not in TIMES})
    return rows


def wait_for_rounds(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 300
    path = folder / "rounds.jsonl"
    while not path.exists() or path.read_text().count("\n") < count:
        assert time.monotonic() < deadline, "the run does not come on"
        time.sleep(0.05)


def family(process: subprocess.Popen[Any], part: str = "") -> list[psutil.Process]:
    """Return what descends from a process whose command line contains something."""
    found = psutil.Process(process.pid).children(recursive=True)
    named = []
    for each in found:
        with suppress(psutil.Error):  # it has just ended
            named += [each] if part in " ".join(each.cmdline()) else []
    return named


def finish(
    folder: Path, *options: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **variables}
    return run_command(command(folder, *options), env=env)


def begin(
    folder: Path, *options: str, rounds: int = 3, **variables: str
) -> subprocess.Popen[str]:
    """Begin a run or go on with it, and wait for its first rounds."""
    process = subprocess.Popen(
        command(folder, *options),
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_rounds(folder, rounds)
    return process


def complaint_of(process: subprocess.Popen[str]) -> str:
    """Wait for the end of a run that fails, and return the one line that says so."""
    with process:
        _, complaint = process.communicate(timeout=180)
    assert process.returncode == 1, complaint
    assert complaint.startswith(ERROR_MARK)
    assert complaint.count("\n") == 1
    return complaint


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The numbers of an uninterrupted run in process."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    subprocess.run(command(folder, "engine=inprocess"), check=True)
    return numbers(folder)


@pytest.mark.parametrize(
    "methods", [KINDS, pytest.param(METHODS, marks=WHOLE)], ids=len
)
def test_methods_have_the_same_numbers_on_ray_and_in_processes(methods, tmp_path):
    small = ["clients=12", "participants=6", "clusters=3", "rounds=3", "seed=3"]
    small += ["drift.rounds=[2]", "model=mlp", "model.hidden=8", "workers=2"]
    asked = [f"strategy={','.join(methods)}", *small]
    # One after the other on one SuperLink, as `flwr run` carries out a sweep.
    sweep = [*asked, f"output_dir={tmp_path / 'ray'}"]
    superlink.run_on_superlink(" ".join(sweep), workers=2)
    options = ["--bare", "--quiet", f"output_dir={tmp_path / 'processes'}"]
    module = [sys.executable, "-m", "simulations.compare"]
    subprocess.run([*module, *asked, *options], check=True, capture_output=True)
    for method in methods:
        ray = numbers(tmp_path / "ray" / method)
        assert len(ray) > 3
        assert ray == numbers(tmp_path / "processes" / method), method


def free_port() -> str:
    return str(superlink.free_ports(1)[0])


def kill_all(process: subprocess.Popen[Any]) -> None:
    for each in [*family(process), psutil.Process(process.pid)]:
        with suppress(psutil.NoSuchProcess):  # it ended with another one
            each.kill()


def stop(node: subprocess.Popen[bytes]) -> None:
    """End a Ray node, gently first."""
    node.terminate()
    try:
        node.wait(60)
    except subprocess.TimeoutExpired:
        kill_all(node)
        node.wait(60)


HEALTH_CHECKS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}
"""By default Ray takes two minutes until it believes that a node is gone."""


@contextmanager
def ray_cluster(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Two Ray nodes on the loopback, with a CPU each.

    Yields their address, and the second one.
    """
    ray, address = str(Path(sys.executable).parent / "ray"), f"127.0.0.1:{free_port()}"
    head = ["--head", "--port", address.partition(":")[2], "--include-dashboard=false"]
    head += ["--ray-client-server-port", free_port(), "--temp-dir", str(folder)]
    with ExitStack() as stack:
        # Each as a machine of its own, which has an address of its own.
        second = ["--address", address, "--node-ip-address", "127.0.0.2"]
        for number, where in enumerate((head, second)):
            agent = ["--dashboard-agent-listen-port", free_port()]
            node = subprocess.Popen(
                [ray, "start", "--block", "--num-cpus=1", *where, *agent],
                env=os.environ | HEALTH_CHECKS,
                stdout=(folder / f"node-{number}.log").open("w"),
                stderr=subprocess.STDOUT,
            )
            stack.callback(stop, node)
        script = (
            "import ray, time\n"
            f"ray.init(address='{address}', logging_level='error')\n"
            "while len([n for n in ray.nodes() if n['Alive']]) < 2: time.sleep(0.2)\n"
        )
        joined = [sys.executable, "-c", script]
        deadline = time.monotonic() + 90
        while subprocess.run(joined, check=False, capture_output=True).returncode:
            assert time.monotonic() < deadline, (folder / "node-0.log").read_text()
        yield address, node


@pytest.mark.whole
def test_a_killed_node_stops_the_run_and_resume_goes_on_with_the_other(
    tmp_path, reference
):
    folder = tmp_path / "run"
    with (
        tempfile.TemporaryDirectory(prefix="ray") as place,
        ray_cluster(Path(place)) as (address, second),
    ):
        process = begin(folder, "workers=2", RAY_ADDRESS=address)
        assert family(second, "ray::ClientAppActor")
        kill_all(second)  # as a machine without power
        assert re.search("a worker was lost.*resume=true", complaint_of(process))
        done = finish(folder, "workers=2", "resume=true", RAY_ADDRESS=address)
    assert done.returncode == 0, done.stderr
    assert numbers(folder) == reference


def test_a_killed_run_goes_on_with_the_numbers_of_an_uninterrupted_one(
    tmp_path, reference
):
    folder = tmp_path / "run"
    process = begin(folder)
    family(process, "ray::ClientAppActor")[0].kill()
    assert re.search("a worker was lost.*resume=true", complaint_of(process))
    with begin(folder, "resume=true", rounds=6) as process:
        process.kill()
    done = finish(folder, "resume=true")
    assert done.returncode == 0, done.stderr
    assert numbers(folder) == reference


@pytest.mark.whole
def test_a_killed_superlink_stops_the_run_in_one_line(tmp_path):
    process = begin(tmp_path / "run")
    for each in family(process, "flower-superlink"):
        each.kill()
    assert "SuperLink is unavailable" in complaint_of(process)


@pytest.mark.whole
def test_the_deployment_door_runs_one_strategy_and_tells_a_failure(tmp_path):
    """`flwr run` itself, as the README has it, once well and once failing."""
    home = tmp_path / "home"
    home.mkdir()
    federation = "num-supernodes=2 client-resources-num-cpus=1"
    with private_superlink(home) as environment:
        for folder, extra in (("good", ""), ("bad", " faults.raises=1")):
            overrides = f"strategy=fedavg rounds=2 output_dir={tmp_path / folder}"
            done = run_command(
                [
                    *("flwr", "run", str(PROJECT), "--stream"),
                    *("--federation-config", federation),
                    *("--run-config", f'overrides="{overrides}{extra}"'),
                ],
                env=environment,
                cwd=home,
            )
            assert done.returncode == 0, "Flower's own exit code says nothing"
            if folder == "good":
                assert "round 2/2" in done.stdout
        listed = run_command(
            ["flwr", "list", "--format", "json"], env=environment, cwd=home, check=True
        )
    states = sorted(run["status"] for run in json.loads(listed.stdout)["runs"])
    assert states == ["finished:completed", "finished:failed"]
    assert (tmp_path / "good" / "summary.json").exists()
    assert not (tmp_path / "bad" / "summary.json").exists()


@pytest.mark.whole
def test_an_installed_wheel_runs_the_app_that_it_carries(tmp_path, monkeypatch):
    # What the wheel has below `simulations`.
    monkeypatch.setattr(superlink, "APP", PROJECT / "pyproject.toml")
    folder = tmp_path / "run"
    line = f"strategy=fedavg drift=none rounds=1 workers=1 output_dir={folder}"
    superlink.run_on_superlink(line, workers=1)
    assert len((folder / "rounds.jsonl").read_text().splitlines()) == 1
    copy = superlink.app_folder(tmp_path)
    names = {path.name for path in copy.iterdir()}
    packages = {"cfl_flower", "strategies", "clients", "conf"}
    assert names == {"pyproject.toml", "LICENSE", *packages}

"""Processes of several runs: one that dies takes no other with it."""

import os
import shutil
import signal
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest

from cfl_flower.runs.console import Verbosity
from simulations.batch.processes import start
from simulations.engines.superlink import PROJECT
from tests.conftest import run_command, sample
from tests.simulations.deploy.loopback import wait_for

pytestmark = pytest.mark.slow

SMALL = "engine=inprocess clients=6 participants=3 drift=none partition.groups=3"

SCRIPT = """
import sys, cfl_flower
cfl_flower.compare(*sys.argv[1:], marks=False, jobs=2, seeds=2, quiet=True)
"""
"""A caller's, without a guard."""


def begin(overrides: str, folder: Path, name: str) -> BaseProcess:
    line = f"{SMALL} {overrides} output_dir={folder / name}"
    return start(line, folder / f"{name}.txt", Verbosity.NORMAL)


def exit_code(process: BaseProcess) -> int | None:
    process.join(60)
    return process.exitcode


def test_a_run_that_is_killed_takes_no_other_with_it(tmp_path):
    endless = begin("rounds=9999", tmp_path, "a")
    wait_for((tmp_path / "a" / "rounds.jsonl").exists, "the first round")
    short = begin("rounds=1", tmp_path, "b")
    os.kill(endless.pid, signal.SIGKILL)
    assert [exit_code(endless), exit_code(short)] == [-signal.SIGKILL, 0]


def test_runs_end_with_the_process_that_asked_for_them(tmp_path):
    asked = [*SMALL.split(), "rounds=9999", "strategy=fedavg", f"output_dir={tmp_path}"]
    with subprocess.Popen([sys.executable, "-c", SCRIPT, *asked]) as caller:
        wait_for((tmp_path / "seed1" / "rounds.jsonl").exists, "the first round")
        started = psutil.Process(caller.pid).children(recursive=True)
        caller.kill()
    assert len(started) >= 3, "two runs and the process that forks"
    # Whoever inherits an ended process may take its time to ask how it ended.
    left = psutil.wait_procs(started, timeout=10)[1]
    assert [each for each in left if each.status() != psutil.STATUS_ZOMBIE] == []


TINY = ["strategy=fedavg", "rounds=1", "clients=6", "participants=3", "drift=none"]
WAYS = {
    "compare": ["-m", "simulations.compare", "--bare", *TINY, "partition.groups=3"],
    "a script": ["-c", SCRIPT, *TINY, "partition.groups=3"],
    "run": ["-m", "simulations.run", *TINY, "partition.groups=3", "engine=processes"],
}


@pytest.mark.parametrize("way", sample(WAYS, ["run"]))
def test_a_second_checkout_runs_its_own_code(way, tmp_path):
    second = tmp_path / "second"
    for package in ("cfl_flower", "strategies", "clients", "simulations", "conf"):
        shutil.copytree(PROJECT / package, second / package)
    with (second / "clients" / "base.py").open("a") as module:
        module.write("print('a client of the second checkout')\n")
    place = [f"output_dir={tmp_path / 'out'}"]
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = run_command([sys.executable, *WAYS[way], *place], cwd=second, env=variables)
    assert done.returncode == 0, done.stderr
    logs = [path.read_text() for path in tmp_path.rglob("log.txt")]
    assert "a client of the second checkout" in "".join([*logs, done.stdout])

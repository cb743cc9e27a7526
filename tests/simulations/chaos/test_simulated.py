"""Faults hit the process and the file that they name."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from simulations.chaos.__main__ import main
from simulations.chaos.simulated import FAULTS, Trial
from tests.simulations.chaos.test_results import saved_run


@pytest.fixture
def sleeper() -> Iterator[psutil.Popen]:
    """A process below which another one sleeps, called as a SuperLink."""
    outer = (
        "import subprocess, sys, time;"
        "name = 'flower-' + 'superlink';"  # not whole in this process' own words
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)', name]);"
        "time.sleep(60)"
    )
    process = psutil.Popen([sys.executable, "-c", outer])
    while not process.children():
        time.sleep(0.01)
    family = [*process.children(), process]
    yield process
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()


def test_a_fault_kills_the_process_that_it_names(
    tmp_path: Path, sleeper: psutil.Popen
) -> None:
    trial = Trial("fedavg", tmp_path, tmp_path)
    root, rng = psutil.Process(sleeper.pid), np.random.default_rng(0)
    (child,) = root.children()
    assert FAULTS["kill SuperLink"](root, trial, rng)
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running()
    assert root.is_running()
    assert not FAULTS["kill worker"](root, trial, rng)


def test_tearing_cuts_the_newest_file_of_the_checkpoint(
    tmp_path: Path, sleeper: psutil.Popen
) -> None:
    folder = saved_run(tmp_path / "run", {})
    trial = Trial("fedavg", folder, tmp_path)
    (file,) = (folder / "checkpoint").iterdir()
    size = file.stat().st_size
    root = psutil.Process(sleeper.pid)
    assert FAULTS["tear"](root, trial, np.random.default_rng(0))
    assert file.stat().st_size < size
    assert root.status() == psutil.STATUS_ZOMBIE


def test_an_unknown_method_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--strategies", "feldings"]) == 2
    assert "fielding" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.ray
def test_a_run_under_chaos_ends_with_the_same_bits() -> None:
    command = [sys.executable, "-m", "simulations.chaos", "--minutes", "0", "--seed=16"]
    asked = [*command, "--strategies", "fielding"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 equal to the bit" in done.stdout

"""Ctrl-C: one line that says how to go on, and the numbers of an undisturbed run."""

import os
import shlex
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import simulations.run
from cfl_flower.runs.lines import read_lines
from tests.conftest import WHOLE

pytestmark = pytest.mark.slow

SMALL = ["strategy=fedavg", "rounds=30", "engine=inprocess"]


def interrupt(command: list[str], folder: Path) -> tuple[int, list[str]]:
    """Interrupt a command in the middle of a run in a folder, as a terminal does.

    Returns its exit code and what it said on stderr.
    """
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while len(read_lines(folder / "rounds.jsonl")) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return process.returncode, said.splitlines()


def accuracies(folder: Path) -> list[Any]:
    return [row["accuracy"] for row in read_lines(folder / "rounds.jsonl")]


@pytest.mark.parametrize(
    ("command", "options", "place"),
    [
        ("run", [], "."),
        pytest.param("compare", ["--bare", "seed=0,1"], "seed0", marks=WHOLE),
    ],
)
def test_an_interrupted_command_says_how_to_go_on(command, options, place, tmp_path):
    module = [sys.executable, "-m", f"simulations.{command}"]
    folder = tmp_path / "run"
    asked = [*module, *SMALL, *options, f"output_dir={folder}"]
    code, said = interrupt(asked, folder / place)
    assert code == 130
    assert not any("Traceback" in line for line in said)
    mark, _, again = said[-1].partition("interrupted; go on by ")
    assert mark == "cfl-flower error: "
    assert len(accuracies(folder / place)) < 30
    _, _, started, *told = shlex.split(again)
    assert import_module(started).main(told) == 0
    assert simulations.run.main([*SMALL, f"output_dir={tmp_path / 'alone'}"]) == 0
    assert accuracies(folder / place) == accuracies(tmp_path / "alone")

"""Faults hit the process and the file that they name; a difference is found."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file

from cfl_flower.errors import ERROR_MARK
from simulations import chaos
from simulations.chaos_results import differences, lost_results

ROUND = {
    **{"round": 1, "accuracy": 0.5, "accuracy_mean": 0.5, "seconds": 1.0},
    **{"failures": [], "cluster_sizes": [2], "bytes_up": 8, "bytes_down": 8},
}
TEST = {"round": 1, "client": 0, "cluster": 0, "accuracy": 0.5, "num_examples": 4}


def saved_run(folder: Path, row: dict[str, object], weight: float = 1.0) -> Path:
    """Return a folder with a run of one round and its checkpoint."""
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "rounds.jsonl").write_text(json.dumps({**ROUND, **row}) + "\n")
    (folder / "clients.jsonl").write_text(json.dumps(TEST) + "\n")
    model = {"model": np.full(3, weight, np.float32)}
    save_file(model, folder / "checkpoint" / "round-00000001.safetensors")
    return folder


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return saved_run(tmp_path / "reference", {})


def test_runs_that_differ_in_seconds_alone_are_equal(
    tmp_path: Path, reference: Path
) -> None:
    assert not differences(reference, saved_run(tmp_path / "same", {"seconds": 7.0}))


def test_a_difference_is_named(tmp_path: Path, reference: Path) -> None:
    other = saved_run(tmp_path / "other", {"accuracy": 0.25})
    assert differences(reference, other) == ["rounds.jsonl: line 1 differs in accuracy"]
    model = saved_run(tmp_path / "model", {}, weight=2.0)
    assert differences(reference, model) == ["checkpoint: other models"]
    (other / "rounds.jsonl").write_text("")
    assert differences(reference, other)[0] == "rounds.jsonl: 0 rows instead of 1"


def test_lost_results_are_failures_beyond_the_references(
    tmp_path: Path, reference: Path
) -> None:
    told = {"phase": "train", "reason": "raised", "detail": "an error"}
    failed = {"failures": [{"client": client, **told} for client in (1, 2)]}
    assert lost_results(reference, saved_run(tmp_path / "lost", failed)) == 2
    assert lost_results(reference, reference) == 0


@pytest.mark.parametrize(
    ("code", "said", "good"),
    [
        (0, "", True),
        (-signal.SIGKILL, "", True),
        (1, f"{ERROR_MARK}a worker was lost; resume=true goes on\n", True),
        (1, "Traceback\n  File\nValueError", False),
        (1, "", False),
    ],
)
def test_a_command_completes_or_says_one_line(code: int, said: str, good: bool) -> None:
    assert (chaos.judge_words(code, said) == "") is good


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
    trial = chaos.Trial("fedavg", tmp_path, tmp_path)
    root, rng = psutil.Process(sleeper.pid), np.random.default_rng(0)
    (child,) = root.children()
    assert chaos.FAULTS["kill SuperLink"](root, trial, rng)
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running()
    assert root.is_running()
    assert not chaos.FAULTS["kill worker"](root, trial, rng)


def test_tearing_cuts_the_newest_file_of_the_checkpoint(
    tmp_path: Path, reference: Path, sleeper: psutil.Popen
) -> None:
    trial = chaos.Trial("fedavg", reference, tmp_path)
    (file,) = (reference / "checkpoint").iterdir()
    size = file.stat().st_size
    root = psutil.Process(sleeper.pid)
    assert chaos.FAULTS["tear"](root, trial, np.random.default_rng(0))
    assert file.stat().st_size < size
    assert root.status() == psutil.STATUS_ZOMBIE


def test_an_unknown_method_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert chaos.main(["--strategies", "feldings"]) == 2
    assert "fielding" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.ray
def test_a_run_under_chaos_ends_with_the_same_bits() -> None:
    command = [sys.executable, "-m", "simulations.chaos", "--minutes", "0", "--seed=16"]
    asked = [*command, "--strategies", "fielding"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 equal to the bit" in done.stdout

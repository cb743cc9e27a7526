"""Worker processes of one machine give the numbers of one, whatever becomes of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from clients.base import ClusteredClient
from simulations.engines.processes import ProcessGrid, usual_start
from tests.conftest import Runner

SMALL = ["rounds=4", "clients=12", "participants=6", "clusters=3", "drift.rounds=[2]"]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")


@pytest.fixture
def two() -> Iterator[ProcessGrid]:
    before = psutil.Process().children()
    with ProcessGrid(2) as grid:
        yield grid
    assert set(psutil.Process().children()) <= set(before)


@pytest.mark.parametrize(
    "overrides",
    [
        ["strategy=fielding"],
        ["strategy=stocfl", "model=mlp"],
        ["strategy=fedccfa", "model=mlp"],
        ["strategy=flexcfl"],
        ["strategy=ccfl"],
        ["strategy=ditto", "faults.raises=0.2", "faults.nan=0.1"],
        ["strategy=fedavg", "privacy.secure_sums=true", "privacy.least_members=2"],
    ],
    ids=lambda overrides: overrides[0],
)
def test_two_processes_give_the_numbers_of_one(
    run_small: Runner, two: ProcessGrid, overrides: list[str]
) -> None:
    one = run_small(*SMALL, *overrides, folder="one")
    both = run_small(*SMALL, *overrides, grid=two)
    assert both.numbers == one.numbers
    assert both.clients == one.clients


@LINUX
def test_a_worker_that_dies_costs_its_clients_their_results_and_is_replaced(
    run_small: Runner,
    two: ProcessGrid,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    honest = ClusteredClient.fit

    def die_once(self: ClusteredClient, parameters: Any, config: Any) -> Any:
        if (self.context.client, self.context.round) == (3, 2):
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(self, parameters, config)

    monkeypatch.setattr(ClusteredClient, "fit", die_once)
    run = run_small(
        *SMALL, "strategy=fedavg", "participants=12", grid=two, folder="killed"
    )
    failures = [row["failures"] for row in run.rounds]
    assert [len(each) for each in failures] == [0, 6, 0, 0]
    assert {each["client"] for each in failures[1]} >= {3}
    assert {each["detail"] for each in failures[1]} == {
        "its worker process was ended by SIGKILL"
    }
    said = [
        record.message for record in caplog.records if "no result" in record.message
    ]
    assert said == ["6 clients have no result: its worker process was ended by SIGKILL"]


def command(folder: Path, *more: str) -> list[str]:
    asked = [*SMALL, "strategy=fielding", "engine=processes", f"output_dir={folder}"]
    return [sys.executable, "-m", "simulations.run", *asked, *more]


@LINUX
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_its_run(tmp_path: Path, how: signal.Signals) -> None:
    asked = command(tmp_path, "rounds=5000", "system.checkpoint_every=100")
    with subprocess.Popen(
        asked,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        path = tmp_path / "rounds.jsonl"
        deadline = time.monotonic() + 60
        while not path.exists() or path.read_text().count("\n") < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        workers = psutil.Process(run.pid).children(recursive=True)
        assert len(workers) == 2
        run.send_signal(how)
        _, gone = psutil.wait_procs(workers, timeout=5)
        assert not [each for each in gone if each.status() != psutil.STATUS_ZOMBIE]
        _, complaint = run.communicate(timeout=30)
    if how is signal.SIGINT:
        assert run.returncode == 130
        assert "interrupted; go on by" in complaint


@pytest.mark.slow
def test_processes_that_are_not_forked_give_the_same_numbers(
    run_small: Runner,
) -> None:
    asked = [*SMALL, "rounds=2", "strategy=fielding"]
    with ProcessGrid(2, "spawn") as grid:
        spawned = run_small(*asked, grid=grid)
    assert spawned.numbers == run_small(*asked, folder="one").numbers


def test_cuda_survives_no_fork() -> None:
    assert usual_start(0.5) == "spawn"

"""Worker processes of one machine give the numbers of one, whatever becomes of them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from torch.utils.data import DataLoader, TensorDataset

from cfl_flower.config.overrides import CONF
from clients.base import ClusteredClient
from simulations.engines.choice import VISIBLE, gpu_of, visible_gpus
from simulations.engines.processes import ProcessGrid, usual_start
from tests.conftest import Runner

METHODS = sorted(path.stem for path in (CONF / "strategy").glob("*.yaml"))
SMALL = ["rounds=4", "clients=12", "participants=6", "clusters=3", "drift.rounds=[2]"]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")


@pytest.fixture
def two() -> Iterator[ProcessGrid]:
    before = psutil.Process().children()
    with closing(ProcessGrid(2)) as grid:
        yield grid
    assert set(psutil.Process().children()) <= set(before)


@pytest.mark.parametrize(
    "overrides",
    [
        *(f"strategy={method}" for method in METHODS),
        "strategy=ditto faults.raises=0.2 faults.nan=0.1",
        "strategy=fedavg privacy.secure_sums=true privacy.least_members=2",
    ],
)
def test_two_processes_give_the_numbers_of_one(
    run_small: Runner, two: ProcessGrid, overrides: str
) -> None:
    asked = [*SMALL, "model=mlp", "model.hidden=8", *overrides.split()]
    one = run_small(*asked, folder="one")
    both = run_small(*asked, grid=two)
    assert both.numbers == one.numbers
    assert both.clients == one.clients


def test_a_run_goes_on_with_more_processes_and_the_same_numbers(
    run_small: Runner,
) -> None:
    asked = [*SMALL, "strategy=ditto", "system.checkpoint_every=1"]
    whole = run_small(*asked, folder="whole")
    with closing(ProcessGrid(2)) as two:
        run_small(*asked, "rounds=2", grid=two)
    with closing(ProcessGrid(3)) as three:
        rest = run_small(*asked, "resume=true", grid=three)
    assert rest.numbers == whole.numbers


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
    asked = [*SMALL, "strategy=fielding", "workers=2", f"output_dir={folder}"]
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
    with closing(ProcessGrid(2, start_method="spawn")) as grid:
        spawned = run_small(*asked, grid=grid)
    assert spawned.numbers == run_small(*asked, folder="one").numbers


def test_cuda_survives_no_fork() -> None:
    assert usual_start(0.5) == "spawn"


def test_workers_share_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "GPU-a,GPU-b")
    assert [gpu_of(worker, 0.5) for worker in range(5)] == [
        *["GPU-a", "GPU-a", "GPU-b", "GPU-b"],
        "GPU-a",
    ]
    assert [gpu_of(worker, 1) for worker in range(3)] == ["GPU-a", "GPU-b", "GPU-a"]
    assert gpu_of(0, 0) is None
    monkeypatch.setenv(VISIBLE, "")
    assert visible_gpus() == []
    assert gpu_of(0, 1) == ""


@LINUX
def test_a_client_may_have_processes_of_its_own(
    run_small: Runner, two: ProcessGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ClusteredClient.fit

    def load(self: ClusteredClient, parameters: Any, config: Any) -> Any:
        view = self.context.stream.view(self.context.client, self.context.round)
        data = TensorDataset(*view.train())
        loader = DataLoader(data, batch_size=50, num_workers=1)
        assert sum(len(y) for _, y in loader) == len(data)
        return honest(self, parameters, config)

    monkeypatch.setattr(ClusteredClient, "fit", load)
    run = run_small(*SMALL, "rounds=1", "strategy=fedavg", grid=two)
    assert run.rounds[0]["failures"] == []


@LINUX
def test_the_memory_of_messages_goes_with_them(
    run_small: Runner, two: ProcessGrid
) -> None:
    run_small(*SMALL, "rounds=2", "strategy=fedavg", grid=two)
    gc.collect()
    # A worker may hold the last message until it has gone to wait for the next one.
    time.sleep(0.1)
    workers = [worker.process.pid for worker in two._workers.values()]
    for process in (os.getpid(), *workers):
        maps = Path(f"/proc/{process}/maps").read_text()
        assert "memfd:cfl-flower" not in maps

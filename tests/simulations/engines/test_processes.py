"""Worker processes of one machine give the numbers of one, whatever becomes of them."""

import gc
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from torch.utils.data import DataLoader, TensorDataset

from cfl_flower.client.resources import WorkerResources
from cfl_flower.client.task_runner import TaskRunner
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.task_records import pack_tasks
from cfl_flower.config.overrides import CONF
from cfl_flower.runs.lines import read_lines
from cfl_flower.types import Answer, Plan, Task
from clients.base import ClusteredClient
from simulations.engines.choice import VISIBLE, gpu_of, visible_gpus
from simulations.engines.processes import SLACK, ProcessGrid, time_for, usual_start
from simulations.engines.shared_arrays import SharedArrays, receive
from tests.conftest import WHOLE, sample
from tests.simulations.deploy.loopback import wait_for

METHODS = sorted(path.stem for path in (CONF / "strategy").glob("*.yaml"))
KINDS = ["ccfl", "fedavg", "fedccfa", "fielding", "flexcfl", "pacfl", "stocfl"]
"""Of messages between a server and its clients."""
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
        *sample(
            [f"strategy={method}" for method in METHODS],
            [f"strategy={method}" for method in KINDS],
        ),
        "strategy=ditto faults.raises=0.2 faults.nan=0.1",
        "strategy=fedavg privacy.secure_sums=true privacy.least_members=2",
    ],
)
def test_two_processes_give_the_numbers_of_one(run_small, two, overrides):
    asked = [*SMALL, "rounds=3", "model=mlp", "model.hidden=8", *overrides.split()]
    one = run_small(*asked, folder="one")
    both = run_small(*asked, grid=two)
    assert both.numbers == one.numbers
    assert both.clients == one.clients


def halt_once(
    monkeypatch: pytest.MonkeyPatch, how: signal.Signals, phase: str, note: Path
) -> None:
    """Let the worker that has client 3 be stopped or killed there, once."""
    honest = TaskRunner.call

    def halt(self: TaskRunner, task: Task, resources: WorkerResources) -> Answer:
        if (self.batch.phase, task.client) == (phase, 3) and not note.exists():
            note.touch()
            os.kill(os.getpid(), how)
        return honest(self, task, resources)

    monkeypatch.setattr(TaskRunner, "call", halt)


@LINUX
def test_a_worker_that_dies_costs_its_clients_their_results_and_is_replaced(
    run_small, two, tmp_path, monkeypatch, caplog
):
    halt_once(monkeypatch, signal.SIGKILL, "train", tmp_path / "note")
    run = run_small(*SMALL, "strategy=fedavg", "participants=12", grid=two)
    failures = [row["failures"] for row in run.rounds]
    assert [len(each) for each in failures] == [6, 0, 0, 0]
    assert {each["client"] for each in failures[0]} >= {3}
    why = "its worker process was ended by SIGKILL"
    assert {each["detail"] for each in failures[0]} == {why}
    said = [line for line in caplog.messages if "no result" in line]
    assert said == [f"6 clients have no result: {why}"]


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("phase", sample(["query", "train", "evaluate"], ["train"]))
def test_a_worker_that_stands_still_costs_what_one_costs_that_dies(
    run_small, tmp_path, monkeypatch, phase
):
    runs = {}
    for how in (signal.SIGKILL, signal.SIGSTOP):
        with monkeypatch.context() as patch, closing(ProcessGrid(2)) as grid:
            halt_once(patch, how, phase, tmp_path / how.name)
            asked = [*SMALL, "strategy=fielding", "system.message_timeout=8"]
            runs[how] = run_small(*asked, folder=f"run-{how.name}", grid=grid)
    stopped = runs[signal.SIGSTOP]
    assert 3 in {each["client"] for each in stopped.failures}
    told = {
        (each["phase"], each["reason"], each["detail"]) for each in stopped.failures
    }
    why = "its worker process did not answer in 8 s and was ended"
    assert told == {(phase, "timeout", why)}
    # But for why, all is as if the worker had died there.
    bare = [_without_reasons(run.numbers) for run in runs.values()]
    assert bare[0] == bare[1]


def _without_reasons(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lost = [
        [(each["client"], each["phase"]) for each in row.get("failures", [])]
        for row in rows
    ]
    return [{**row, "failures": own} for row, own in zip(rows, lost, strict=True)]


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("method", sample(["ccfl", "fedbuff"], ["ccfl"]))
def test_uploads_without_rounds_go_on_after_a_worker_that_stands_still(
    run_small, tmp_path, monkeypatch, method
):
    halt_once(monkeypatch, signal.SIGSTOP, "train", tmp_path / "note")
    asked = [*SMALL, f"strategy={method}", "system.message_timeout=8", "rounds=12"]
    with closing(ProcessGrid(2)) as grid:
        run = run_small(*asked, grid=grid)
    assert len(run.rounds) == 12
    assert {each["reason"] for each in run.failures} == {"timeout"}


@LINUX
def test_nobody_waits_for_a_process_that_does_not_read():
    ours, theirs = socket.socketpair()
    big = ConfigRecord({"names": ["x" * 1000] * 5000})
    message = Message(RecordDict({"batch": big}), 1, "train")
    ours.settimeout(5)
    with closing(ours), closing(theirs), closing(SharedArrays()) as arrays:
        arrays.send(message, ours)
        assert receive(theirs).content == message.content
        theirs.close()
        with pytest.raises(BrokenPipeError):
            arrays.send(message, ours)


@pytest.mark.parametrize(
    ("task", "message", "seconds"),
    [
        (0, 0, math.inf),
        (0, 30, 30),
        (5, 0, 5 * 2 + SLACK),
        (5, 60, 60),
        (5, 600, 5 * 2 + SLACK),
    ],
)
def test_a_worker_may_take_as_long_as_its_tasks_may(task, message, seconds):
    system = {"task_timeout": task, "message_timeout": message}
    tasks = [Task(0), Task(1)]
    pending = PendingMessage("train", 1, Plan(tasks), tasks, 1)
    content = pack_tasks(pending, json.dumps({"system": system}), {})
    assert time_for(Message(content, 1, "train")) == seconds


@LINUX
@pytest.mark.parametrize(
    ("how", "frozen"),
    [
        (signal.SIGINT, False),
        (signal.SIGKILL, True),
        pytest.param(signal.SIGINT, True, marks=WHOLE),
        pytest.param(signal.SIGKILL, False, marks=WHOLE),
    ],
)
def test_no_process_outlives_its_run(tmp_path, how, frozen):
    asked = [*SMALL, "strategy=fielding", "workers=2", f"output_dir={tmp_path}"]
    asked += ["rounds=5000", "system.checkpoint_every=100"]
    command = [sys.executable, "-m", "simulations.run", *asked]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        path = tmp_path / "rounds.jsonl"
        wait_for(lambda: len(read_lines(path)) >= 3, "the third round")
        workers = psutil.Process(run.pid).children(recursive=True)
        assert len(workers) == 2
        if frozen:
            workers[0].suspend()
        run.send_signal(how)
        _, gone = psutil.wait_procs(workers, timeout=5)
        assert not [each for each in gone if each.status() != psutil.STATUS_ZOMBIE]
        _, complaint = run.communicate(timeout=30)
    if how is signal.SIGINT:
        assert run.returncode == 130
        assert "interrupted; go on by" in complaint


@pytest.mark.slow
def test_processes_that_are_not_forked_give_the_same_numbers(run_small):
    asked = [*SMALL, "rounds=2", "strategy=fielding"]
    with closing(ProcessGrid(2, start_method="spawn")) as grid:
        spawned = run_small(*asked, grid=grid)
    assert spawned.numbers == run_small(*asked, folder="one").numbers


def test_cuda_survives_no_fork():
    assert usual_start(0.5) == "spawn"


def test_workers_share_gpus_in_turn(monkeypatch):
    monkeypatch.setenv(VISIBLE, "GPU-a,GPU-b")
    halves = [gpu_of(worker, 0.5) for worker in range(5)]
    assert halves == ["GPU-a", "GPU-a", "GPU-b", "GPU-b", "GPU-a"]
    assert [gpu_of(worker, 1) for worker in range(3)] == ["GPU-a", "GPU-b", "GPU-a"]
    assert gpu_of(0, 0) is None
    monkeypatch.setenv(VISIBLE, "")
    assert visible_gpus() == []
    assert gpu_of(0, 1) == ""


@LINUX
def test_a_client_may_have_processes_of_its_own(run_small, two, monkeypatch):
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
def test_the_memory_of_messages_goes_with_them(run_small, two):
    run_small(*SMALL, "rounds=2", "strategy=fedavg", grid=two)
    gc.collect()
    # A worker may hold the last message until it has gone to wait for the next one.
    time.sleep(0.1)
    workers = [worker.process.pid for worker in two._workers.values()]
    for process in (os.getpid(), *workers):
        assert "memfd:cfl-flower" not in Path(f"/proc/{process}/maps").read_text()

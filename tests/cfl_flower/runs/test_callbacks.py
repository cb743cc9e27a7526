"""What is told of a run while it goes on: lines, loggers and checkpoints."""

import io
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.callbacks import BestCheckpoint, Checkpointer, Progress, Verbosity
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.directory import BEST
from cfl_flower.runs.loggers import numbers, open_logger
from cfl_flower.runs.record import ClientRow, RoundRecord
from cfl_flower.state import ClusteredState
from cfl_flower.types import Failure


def state(number: int = 0) -> ClusteredState:
    return ClusteredState([0, 1], np.array([0, 0]), [np.float32([number])])


def line(record: RoundRecord, rounds: int = 20) -> str:
    return Progress(Console(file=io.StringIO()), "fedavg", rounds).line(record)


@pytest.mark.parametrize(
    ("every", "newest"),
    [(1, [1, 2, 3, 4, 5]), (2, [0, 2, 2, 4, 5]), (5, [0, 0, 0, 0, 5])],
)
def test_every_few_rounds_and_the_last_one_are_saved(tmp_path, every, newest):
    checkpoint = Checkpoint(tmp_path / "checkpoint", {"seed": 0})
    nothing = BestCheckpoint(Checkpoint(tmp_path / BEST, {}), None)
    checkpointer = Checkpointer(checkpoint, every, 5, nothing)
    for round, expected in enumerate(newest, start=1):
        checkpointer(RoundRecord(round), [], state(round))
        assert checkpoint.exists() == (expected > 0)
        if expected:
            done, loaded = checkpoint.load(ClusteredState)
            assert (done, loaded.models[0].tolist()) == (expected, [expected])


@pytest.mark.parametrize(
    ("measure", "values", "kept"),
    [
        ("accuracy", [0.5, 0.7, 0.6, 0.7, None], [1, 2, 2, 2, 2]),
        ("accuracy", [None, None, 0.0, 0.1, 0.0], [0, 0, 3, 4, 4]),
        ("loss", [2.5, 0.7, 1.6, 0.1, None], [1, 2, 2, 4, 4]),
        ("calibration", [0.0, 0.7, -1.0, 0.1, None], [1, 1, 3, 3, 3]),
        ("auc", [None, 0.5, 0.4, 0.5, 0.9], [0, 2, 2, 2, 5]),
    ],
)
@pytest.mark.parametrize("stop", range(5))
def test_the_best_checkpoint_is_kept_by_whoever_goes_on(
    measure, values, kept, stop, tmp_path
):
    last = Checkpoint(tmp_path / "checkpoint", {"seed": 0})
    best = Checkpoint(tmp_path / BEST, {"seed": 0})
    records = [RoundRecord(number, measures={}) for number in range(1, 6)]
    for record, value in zip(records, values, strict=True):
        extra = vars(record) if hasattr(record, measure) else record.measures
        extra[measure] = value
    rows = [record.row() for record in records]
    keep = Checkpointer(last, 1, 5, BestCheckpoint(best, measure))
    for number, record in enumerate(records, start=1):
        if number == stop:
            # Killed after the last checkpoint was saved; what goes on offers it again.
            last.save(number, state(number))
            again = BestCheckpoint(best, measure, rows[:number], state(number))
            keep = Checkpointer(last, 1, 5, again)
        else:
            keep(record, [], state(number))
        assert best.exists() == (kept[number - 1] > 0)
        if best.exists():
            found, loaded = best.load(ClusteredState)
            assert found == kept[number - 1] == loaded.models[0][0]


def test_a_best_of_rounds_that_do_not_count_gives_way(tmp_path):
    best = Checkpoint(tmp_path / BEST, {})
    BestCheckpoint(best, "accuracy").offer({"round": 8, "accuracy": 1.0}, state(8))
    rows = [{"round": number, "accuracy": 0.5} for number in range(1, 4)]
    BestCheckpoint(best, None, rows, state(3))
    # Somebody removed the lines.
    BestCheckpoint(best, "accuracy", [], state(3))
    assert best.load(ClusteredState)[0] == 8
    BestCheckpoint(best, "accuracy", rows, state(3))
    assert best.load(ClusteredState)[0] == 3


def test_a_progress_line_has_what_was_measured_alone():
    failures = [Failure(1, "train", "raised", "no")] * 2
    counts = {"num_clusters": 3, "drifted": 12, "moved": 9, "reclustered": True}
    told = {"accuracy": 0.875, "loss": 0.25, "seconds": 1.5, "failures": failures}
    assert " ".join(line(RoundRecord(7, **counts, **told)).split()) == (
        "fedavg round 7/20 accuracy 87.5% loss 0.250 clusters 3 drifted 12 moved 9 "
        "re-clustered failures 2 1.50 s"
    )
    words = line(RoundRecord(7, num_clusters=1, drifted=0, reclustered=False)).split()
    assert words == ["fedavg", "round", "7/20", "clusters", "1"]


def printed(verbosity: Verbosity, *records: RoundRecord) -> list[str]:
    text = io.StringIO()
    progress = Progress(Console(file=text, width=200), "fedavg", 20, verbosity)
    for record in records:
        progress(record, [], state())
    return text.getvalue().splitlines()


def test_the_remaining_time_is_estimated_without_the_first_round():
    records = [RoundRecord(r, seconds=s) for r, s in enumerate([30.0, 4.0, 6.0], 1)]
    lines = printed(Verbosity.NORMAL, *records)
    times = [line.split("  ")[-1] for line in lines]
    # 18 rounds of 4 s, then 17 of 5 s.
    assert times == ["30.00 s", "1:12 left", "1:25 left"]


def test_quiet_prints_nothing_and_failures_are_told_once_a_kind():
    failures = [Failure(client, "train", "raised", "no") for client in (1, 2)]
    failures.append(Failure(3, "train", "shape", "(2,), not (3,)"))
    record = RoundRecord(1, failures=failures)
    assert printed(Verbosity.QUIET, record) == []
    # The first of each kind, once in a run.
    *told, line, again = printed(Verbosity.NORMAL, record, record)
    assert told == [
        "round 1, train, client 1: raised: no",
        "round 1, train, client 3: shape: (2,), not (3,)",
    ]
    assert line == again


# The real loggers, each with its own files


FIRST = RoundRecord(1, accuracy=0.5, ari=None, failures=[Failure(1, "train", "a", "b")])
SECOND = RoundRecord(2, accuracy=0.75, reclustered=True)
ROWS = [ClientRow(1, 0, 0, 0.25, 8), ClientRow(1, 1, 0, 0.75, 8)]


def composed(folder: Path, logger: str, *overrides: str) -> RunConfig:
    return compose_config([f"logger={logger}", f"output_dir={folder}", *overrides])


def test_what_is_one_number_is_logged():
    found = numbers(FIRST)
    assert (found["accuracy"], found["failures"]) == (0.5, 1)
    assert not {"round", "ari", "cluster_sizes"} & set(found)


def test_tensorboard_gets_every_measured_number(tmp_path):
    events = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    config = composed(tmp_path, "tensorboard")
    with open_logger(config, 0, print) as write:
        write(FIRST, ROWS, state())
        write(SECOND, [], state())
    # What comes after the checkpoint is dropped by the run that goes on.
    with open_logger(config, 1, print) as write:
        write(RoundRecord(2, accuracy=0.875), [], state())
    found = events.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    values = [(event.step, event.value) for event in found.Scalars("accuracy")]
    assert values == [(1, 0.5), (2, 0.875)]
    assert "ari" not in found.Tags()["scalars"]


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of MLflow, whose runs are in a folder of the test."""
    library = pytest.importorskip("mlflow", reason="needs mlflow-skinny")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return library.MlflowClient(tracking_uri=f"file://{tmp_path}/mlruns")


def run_of(client: Any) -> Any:
    experiment = client.get_experiment_by_name("cfl-flower")
    (run,) = client.search_runs([experiment.experiment_id])
    return run


def test_mlflow_goes_on_with_a_run(mlflow, tmp_path):
    uri = f"logger.uri={mlflow.tracking_uri}"
    config = composed(tmp_path / "run", "mlflow", uri, "seed=7")
    with open_logger(config, 0, print) as write:
        write(FIRST, ROWS, state())
    with open_logger(config, 1, print) as write:
        write(SECOND, [], state())
    run = run_of(mlflow)
    assert run.data.params["seed"] == "7"
    assert run.data.params["strategy.name"] == "fielding"
    assert run.info.status == "FINISHED"
    history = mlflow.get_metric_history(run.info.run_id, "accuracy")
    assert [(each.step, each.value) for each in history] == [(1, 0.5), (2, 0.75)]
    with pytest.raises(ZeroDivisionError), open_logger(config, 2, print):
        raise ZeroDivisionError
    assert mlflow.get_run(run.info.run_id).info.status == "FAILED"


def test_wandb_writes_files_that_can_be_sent_later(tmp_path):
    pytest.importorskip("wandb", reason="needs wandb")
    (tmp_path / "run").mkdir()
    with open_logger(composed(tmp_path / "run", "wandb"), 0, print) as write:
        write(FIRST, ROWS, state())
        write(SECOND, [], state())
    (record,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    # Its own process writes the file, and may end a moment later.
    until = time.monotonic() + 30
    while b"0.75" not in record.read_bytes() and time.monotonic() < until:
        time.sleep(0.1)
    for text in (b"accuracy", b"0.75", b"fielding"):
        assert text in record.read_bytes()


def test_a_logger_that_fails_costs_no_run(mlflow, tmp_path):
    config = composed(tmp_path / "run", "mlflow", f"logger.uri={mlflow.tracking_uri}")
    messages: list[str] = []
    with open_logger(config, 0, messages.append) as write:
        mlflow.delete_run(run_of(mlflow).info.run_id)
        write(FIRST, ROWS, state())
        write(SECOND, [], state())
    # In the first round, not again in the second, and when the run is closed.
    assert len(messages) == 2
    assert "logger=mlflow failed" in messages[0]
    assert "the run goes on" in messages[0]


@pytest.mark.parametrize("own", [None, "as its user says"])
def test_a_logger_that_cannot_be_opened_is_one_line(own, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs mlflow-skinny")
    name = "MLFLOW_DISABLE_TELEMETRY"
    monkeypatch.setenv(name, own or "")
    if own is None:
        monkeypatch.delenv(name)
    config = composed(tmp_path, "mlflow", "logger.uri=nothing://here")
    with (
        pytest.raises(ConfigError, match=r"logger=mlflow cannot be opened \(") as error,
        open_logger(config, 0, print),
    ):
        raise AssertionError
    assert "\n" not in str(error.value)
    assert os.environ[name] == (own or "true")

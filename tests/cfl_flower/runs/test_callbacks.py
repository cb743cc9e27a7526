import io

import numpy as np
import pytest
from rich.console import Console

from cfl_flower.runs.callbacks import Checkpointer, Progress, Verbosity
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.record import RoundRecord
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
def test_the_checkpointer_saves_every_few_rounds_and_after_the_last(
    tmp_path, every, newest
):
    checkpoint = Checkpoint(tmp_path / "checkpoint", {"seed": 0})
    checkpointer = Checkpointer(checkpoint, every, last=5)
    for round, expected in enumerate(newest, start=1):
        checkpointer(RoundRecord(round), [], state(round))
        assert checkpoint.exists() == (expected > 0)
        if expected:
            done, loaded = checkpoint.load(ClusteredState)
            assert (done, loaded.models[0].tolist()) == (expected, [expected])


def test_a_progress_line_has_what_was_measured():
    record = RoundRecord(
        7,
        accuracy=0.875,
        loss=0.25,
        num_clusters=3,
        drifted=12,
        moved=9,
        reclustered=True,
        failures=[Failure(1, "train", "raised", "no")] * 2,
        seconds=1.5,
    )
    assert " ".join(line(record).split()) == (
        "fedavg round 7/20 accuracy 87.5% loss 0.250 clusters 3 drifted 12 moved 9 "
        "re-clustered failures 2 1.50 s"
    )


def test_a_progress_line_leaves_out_what_was_not_measured():
    words = line(RoundRecord(7, num_clusters=1, drifted=0, reclustered=False)).split()
    assert words == ["fedavg", "round", "7/20", "clusters", "1"]


def printed(verbosity: Verbosity, *records: RoundRecord) -> list[str]:
    text = io.StringIO()
    progress = Progress(Console(file=text, width=200), "fedavg", 20, verbosity)
    for record in records:
        progress(record, [], state())
    return text.getvalue().splitlines()


def test_the_remaining_time_is_estimated_without_the_first_round():
    lines = printed(
        Verbosity.NORMAL,
        *(RoundRecord(r, seconds=s) for r, s in enumerate([30.0, 4.0, 6.0], start=1)),
    )
    assert [line.split("  ")[-1] for line in lines] == [
        "30.00 s",
        "1:12 left",  # 18 rounds of 4 s
        "1:25 left",  # 17 rounds of 5 s
    ]


def test_quiet_prints_nothing_and_failures_are_told_once_a_kind():
    failures = [
        Failure(1, "train", "raised", "no"),
        Failure(2, "train", "raised", "no"),
        Failure(3, "train", "shape", "(2,), not (3,)"),
    ]
    record = RoundRecord(1, failures=failures)
    assert printed(Verbosity.QUIET, record) == []
    # The first of each kind, once in a run.
    *told, line, again = printed(Verbosity.NORMAL, record, record)
    assert told == [
        "round 1, train, client 1: raised: no",
        "round 1, train, client 3: shape: (2,), not (3,)",
    ]
    assert line == again


def test_on_a_terminal_a_run_is_one_block_in_the_place_of_lines():
    text = io.StringIO()
    console = Console(file=text, width=80, force_terminal=True, color_system=None)
    progress = Progress(console, "fielding", 8)
    with progress.open():
        for number, accuracy in enumerate([0.5, 0.9, None, 0.5], 1):
            record = RoundRecord(number, accuracy, num_clusters=number, seconds=2.0)
            progress(record, [], state())
    last = text.getvalue().splitlines()[-2].split()
    assert last[-5:] == ["fielding", "4/8", "50.0%", "4", "0:08"]
    assert "loss" not in text.getvalue()

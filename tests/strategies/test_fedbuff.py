"""FedBuff's buffer: what goes in, and the step when it is full."""

from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.types import Result, Vector
from tests.conftest import open_method

RUN = ["strategy=fedbuff", "strategy.buffer=4", "drift.rounds=[]"]


@pytest.fixture
def strategy(tmp_path: Path) -> Any:
    options = ["strategy.buffer=2", "strategy.server_rate=0.5"]
    made = open_method(tmp_path, "strategy=fedbuff", *options)
    state = made.state
    state.models = [np.float32([10])]
    state.served = [np.float32([10]), np.float32([8])]
    state.received = np.array([0, 0])
    return made


def upload(value: float) -> Result:
    return Result(0, 5, [np.float32([value])], metrics={"stamp": 0})


def take(strategy: Any, row: int, value: float) -> Vector:
    (sent,) = strategy.reply(row, upload(value))
    strategy.state.served[row] = strategy.personal(row, [sent])
    return sent


def test_a_full_buffer_makes_a_step_and_is_emptied(strategy):
    assert take(strategy, 0, 14) == pytest.approx([10])
    assert strategy.state.held == 1
    # Updates of 4 and 6, half of their mean.
    assert take(strategy, 1, 14) == pytest.approx([12.5])
    assert strategy.state.held == 0
    assert strategy.state.steps == 1
    assert strategy.state.received.tolist() == [0, 1]


def test_an_update_counts_less_by_the_versions_since(strategy):
    strategy.state.steps = 3
    take(strategy, 0, 14)
    # Three versions are between its model and the newest.
    assert strategy.state.gathered == pytest.approx([4 / sqrt(4)])
    # The next one was trained from the newest, and its weight is 1.
    take(strategy, 0, 11)
    assert strategy.state.models[0] == pytest.approx([10 + 0.5 * (2 + 1) / 2])

"""FedAsync's weights, and what an upload does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.types import Result
from strategies.fedasync import weight_of
from tests.conftest import open_method


@pytest.fixture
def strategy(tmp_path: Path) -> Any:
    options = ["strategy.alpha=0.6", "strategy.a=0.5"]
    made = open_method(tmp_path, "strategy=fedasync", *options)
    made.state.models = [np.float32([10])]
    return made


def test_an_upload_counts_less_the_staler_it_is():
    weights = [weight_of(staleness, 0.8, 1.0) for staleness in (0, 1, 3)]
    assert weights == pytest.approx([0.8, 0.4, 0.2])
    assert weight_of(9, 0.8, 0) == 0.8


def test_a_fresh_upload_moves_the_model_by_alpha(strategy):
    strategy.state.epoch = 1
    upload = Result(0, 5, [np.float32([20])], metrics={"stamp": 0})
    (sent,) = strategy.reply(0, upload)
    assert sent == pytest.approx([16])
    assert sent.dtype == np.float32
    assert strategy.describe_upload(0, upload) == {"staleness": 0}


def test_a_stale_upload_moves_it_by_less(strategy):
    strategy.state.epoch = 4
    upload = Result(0, 5, [np.float32([20])], metrics={"stamp": 0})
    # Three uploads came between: 0.6 * 4 ** -0.5.
    assert strategy.reply(0, upload)[0] == pytest.approx([13])

"""Methods whose clients upload when they like: what an upload does."""

from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Result, Vector
from clients.fedsoft import count_shares
from tests.conftest import open_method


def update_of(value: float) -> Result:
    return Result(0, 5, [np.float32([value])], metrics={"stamp": 0})


# FedAsync


@pytest.fixture
def fedasync(tmp_path: Path) -> Any:
    options = ["strategy.alpha=0.6", "strategy.a=0.5"]
    made = open_method(tmp_path, "strategy=fedasync", *options)
    made.state.models = [np.float32([10])]
    return made


def test_a_fresh_upload_moves_the_model_by_alpha(fedasync):
    fedasync.state.epoch = 1
    (sent,) = fedasync.reply(0, update_of(20))
    assert sent == pytest.approx([16])
    assert sent.dtype == np.float32
    assert fedasync.describe_upload(0, update_of(20)) == {"staleness": 0}


def test_a_stale_upload_moves_it_by_less(fedasync):
    fedasync.state.epoch = 4
    # Three uploads came between: 0.6 * 4 ** -0.5.
    assert fedasync.reply(0, update_of(20))[0] == pytest.approx([13])


# FedBuff


@pytest.fixture
def fedbuff(tmp_path: Path) -> Any:
    options = ["strategy.buffer=2", "strategy.server_rate=0.5"]
    made = open_method(tmp_path, "strategy=fedbuff", *options)
    state = made.state
    state.models = [np.float32([10])]
    state.served = [np.float32([10]), np.float32([8])]
    state.received = np.array([0, 0])
    return made


def take(fedbuff: Any, row: int, value: float) -> Vector:
    (sent,) = fedbuff.reply(row, update_of(value))
    fedbuff.state.served[row] = fedbuff.personal(row, [sent])
    return sent


def test_a_full_buffer_makes_a_step_and_is_emptied(fedbuff):
    assert take(fedbuff, 0, 14) == pytest.approx([10])
    assert fedbuff.state.held == 1
    # Updates of 4 and 6, half of their mean.
    assert take(fedbuff, 1, 14) == pytest.approx([12.5])
    assert fedbuff.state.held == 0
    assert fedbuff.state.steps == 1
    assert fedbuff.state.received.tolist() == [0, 1]


def test_an_update_counts_less_by_the_versions_since(fedbuff):
    fedbuff.state.steps = 3
    take(fedbuff, 0, 14)
    # Three versions are between its model and the newest.
    assert fedbuff.state.gathered == pytest.approx([4 / sqrt(4)])
    # The next one was trained from the newest, and its weight is 1.
    take(fedbuff, 0, 11)
    assert fedbuff.state.models[0] == pytest.approx([10 + 0.5 * (2 + 1) / 2])


# FedSoft


SOFT = ["strategy=fedsoft", "strategy.public=30", "participants=12"]


@pytest.fixture
def fedsoft(tmp_path: Path) -> Any:
    options = ["strategy.alpha=0.1", "clients=12", "partition.groups=3"]
    made = open_method(tmp_path, *SOFT, *options)
    made.state.clients, made.state.clusters = [0], np.zeros(1, np.int64)
    made.state.shares = np.full((1, 3), 1 / 3)
    made.state.models = [np.float32([k]) for k in (0, 10, 20)]
    return made


def test_every_sample_counts_for_the_model_that_fits_it_best():
    losses = np.array([[1.0, 0.2, 0.3, 5.0], [0.5, 0.9, 0.4, 6.0], [2.0] * 4])
    assert count_shares(losses).tolist() == [0.5, 0.25, 0.25]


def test_every_model_moves_by_the_share_of_it(fedsoft):
    fedsoft.state.epoch = 1
    shares = np.float32([0.5, 0.5, 0.0])
    model = np.float32([100])
    sent = fedsoft.reply(0, Result(0, 5, [model, shares], metrics={"stamp": 0}))
    # alpha_0 = 0.1, so a step of 0.05.
    assert [float(each[0]) for each in sent] == pytest.approx([5, 14.5, 20])
    assert fedsoft.personal(0, sent) == pytest.approx([9.75])
    assert fedsoft.state.updated.tolist() == [1, 1, 0]


@pytest.mark.parametrize("shares", [[0.5, 0.6, 0.0], [1.5, -0.5, 0.0]])
def test_shares_that_are_no_mixture_are_refused(fedsoft, shares):
    fedsoft.state.clients, fedsoft.state.stamps = [0], np.array([0])
    result = Result(0, 5, [np.float32([1]), np.float32(shares)], metrics={"stamp": 0})
    with pytest.raises(InvalidResultError, match="are no mixture"):
        fedsoft.read_result("train", result)


def test_all_models_go_down_and_one_with_shares_goes_up(run_small):
    run = run_small(*SOFT, "drift.rounds=[]")
    assert run.rounds[1]["bytes_up"] == 12 * (650 * 4 + 3 * 4 + 8)
    assert run.rounds[1]["bytes_down"] == 12 * (3 * 650 * 4 + 8)
    # Their search costs the clients three passes more over each sample.
    ccfl = run_small(*SOFT, "strategy=ccfl", "drift.rounds=[]", folder="ccfl")
    seconds = [each.rounds[1]["virtual_seconds"] for each in (run, ccfl)]
    assert seconds[0] > seconds[1]


# Clients alone


ALONE = ["strategy=local_async", "strategy.public=30", "participants=12"]


def test_models_that_travel_for_the_simulation_take_no_time(run_small):
    runs = [run_small(*ALONE, f"devices.kbps={n}", folder=n) for n in ("0.5", "5e5")]
    seconds = [[row["virtual_seconds"] for row in run.rounds] for run in runs]
    assert seconds[0] == seconds[1]


def test_clients_go_on_from_their_own_models(run_small):
    shuffled = ["strategy.arrival=shuffled", "drift.rounds=[]"]
    run = run_small(*ALONE, *shuffled)
    # What a client uploaded is what it is tested with next.
    for row in run.clients:
        assert row["accuracy"] == row["before"]
    assert len({(row["client"], row["accuracy"]) for row in run.clients}) > 12

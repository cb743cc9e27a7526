from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Result
from clients.fedsoft import count_shares
from tests.conftest import open_method

SOFT = ["strategy=fedsoft", "strategy.public=30", "participants=12"]


@pytest.fixture
def strategy(tmp_path: Path) -> Any:
    options = ["strategy.alpha=0.1", "clients=12", "partition.groups=3"]
    made = open_method(tmp_path, *SOFT, *options)
    made.state.clients, made.state.clusters = [0], np.zeros(1, np.int64)
    made.state.shares = np.full((1, 3), 1 / 3)
    made.state.models = [np.float32([k]) for k in (0, 10, 20)]
    return made


def test_every_sample_counts_for_the_model_that_fits_it_best():
    losses = np.array([[1.0, 0.2, 0.3, 5.0], [0.5, 0.9, 0.4, 6.0], [2.0] * 4])
    assert count_shares(losses).tolist() == [0.5, 0.25, 0.25]


def test_every_model_moves_by_the_share_of_it(strategy):
    strategy.state.epoch = 1
    shares = np.float32([0.5, 0.5, 0.0])
    model = np.float32([100])
    sent = strategy.reply(0, Result(0, 5, [model, shares], metrics={"stamp": 0}))
    # alpha_0 = 0.1, so a step of 0.05.
    assert [float(each[0]) for each in sent] == pytest.approx([5, 14.5, 20])
    assert strategy.personal(0, sent) == pytest.approx([9.75])
    assert strategy.state.updated.tolist() == [1, 1, 0]


@pytest.mark.parametrize("shares", [[0.5, 0.6, 0.0], [1.5, -0.5, 0.0]])
def test_shares_that_are_no_mixture_are_refused(strategy, shares):
    strategy.state.clients, strategy.state.stamps = [0], np.array([0])
    result = Result(0, 5, [np.float32([1]), np.float32(shares)], metrics={"stamp": 0})
    with pytest.raises(InvalidResultError, match="are no mixture"):
        strategy.read_result("train", result)


def test_all_models_go_down_and_one_with_shares_goes_up(run_small):
    run = run_small(*SOFT, "drift.rounds=[]")
    assert run.rounds[1]["bytes_up"] == 12 * (650 * 4 + 3 * 4 + 8)
    assert run.rounds[1]["bytes_down"] == 12 * (3 * 650 * 4 + 8)
    # Their search costs the clients three passes more over each sample; the server,
    # which looks at nothing, none.
    assert run.rounds[1]["server_passes"] == 0
    ccfl = run_small(*SOFT, "strategy=ccfl", "drift.rounds=[]", folder="ccfl")
    passes = [each.rounds[1]["client_passes"] for each in (run, ccfl)]
    assert passes[0] == pytest.approx(2 * passes[1])
    assert ccfl.rounds[1]["server_passes"] > 0

from dataclasses import replace

import numpy as np
import pytest

from cfl_flower.errors import NoValidResultError
from cfl_flower.types import Result
from strategies.flash import FlashSettings, flash_step
from tests.conftest import open_method

SETTINGS = FlashSettings()


def test_a_step_by_hand():
    moments = [np.array([0.5]), np.array([4.0]), np.array([1.0])]
    model, (m, v, d) = flash_step(np.array([10.0]), np.array([3.0]), moments, SETTINGS)
    assert m == pytest.approx([0.75])
    assert v == pytest.approx([4.05])
    share = 4 / (9 - 4.05 + 4)
    assert d == pytest.approx([share + (1 - share) * 4.95])
    assert model == pytest.approx(10 + 0.0075 / (np.sqrt(4.05) - d + 0.001))


def test_the_guard_keeps_steps_finite_and_in_the_right_direction():
    # d above sqrt(v): as published, the step goes the wrong way.
    moments = [np.array([1.0]), np.array([0.01]), np.array([5.0])]
    wrong, _ = flash_step(np.zeros(1), np.ones(1), moments, SETTINGS)
    guarded, _ = flash_step(
        np.zeros(1), np.ones(1), moments, replace(SETTINGS, guard=True)
    )
    assert wrong < 0 < guarded
    assert guarded == pytest.approx([0.01 * 1.0 / 0.001])


@pytest.mark.parametrize("name", ["flash", "adapfedavg"])
def test_running_statistics_are_averaged_and_measure_nothing(name, tmp_path):
    options = [f"strategy={name}", "model=shufflenet_v2", "dataset.size=9"]
    strategy = open_method(tmp_path, *options)
    strategy.state.clients, strategy.state.clusters = [0, 1], np.zeros(2, np.int64)
    (before,), count = strategy.state.models, strategy.run.weights
    assert 0 < count < len(before)
    statistics = np.linspace(1, 2, len(before) - count, dtype=np.float32)
    same = np.concatenate([before[:count], statistics])
    strategy.absorb_train(1, [Result(0, 5, [same]), Result(1, 5, [same])])
    (after,) = strategy.state.models
    # What does not change has no step, whatever the statistics do.
    assert np.array_equal(after[:count], before[:count])
    assert after[count:] == pytest.approx(statistics)
    other = np.concatenate([before[:count] + 1, statistics])
    strategy.absorb_train(2, [Result(0, 5, [other])])
    assert not np.array_equal(strategy.state.models[0][:count], before[:count])
    assert strategy.state.models[0][count:] == pytest.approx(statistics)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_model_that_diverged_at_the_server_is_not_blamed_on_clients(run_small):
    with pytest.raises(NoValidResultError, match="received is not finite itself"):
        run_small("strategy=flash", "strategy.server_rate=1e45")

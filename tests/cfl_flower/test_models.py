from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from cfl_flower.errors import ConfigError
from cfl_flower.models import FlatModel, Mclr, Mlp, initial_vector


@pytest.mark.parametrize(
    ("settings", "parameters"),
    [(Mclr(), 7_850), (Mlp(hidden=128), 101_770), (Mlp(hidden=512), 407_050)],
)
def test_parameter_counts_on_mnist_are_the_papers(
    settings: Mclr | Mlp, parameters: int
) -> None:
    assert initial_vector(settings, (1, 28, 28), 10, seed=0).shape == (parameters,)


def test_the_network_sees_a_loaded_vector_at_once() -> None:
    model = FlatModel(nn.Linear(2, 1))
    model.load(np.float32([3, 4, 5]))
    assert model.module(torch.ones(1, 2)).item() == 3 + 4 + 5


def test_gradients_land_in_one_vector_in_the_order_of_the_parameters() -> None:
    model = FlatModel(nn.Linear(2, 1))
    model.module(torch.tensor([[7.0, 8.0]])).sum().backward()
    assert model.gradient.tolist() == [7, 8, 1]


def test_a_vector_taken_out_does_not_follow_further_training() -> None:
    model = FlatModel(nn.Linear(2, 1))
    taken = model.load(np.float32([1, 2, 3])).to_vector()
    model.vector.zero_()
    assert taken.tolist() == [1, 2, 3]
    assert taken.dtype == np.float32


def test_the_initial_model_follows_the_seed_and_leaves_torchs_generator_alone() -> None:
    before = torch.random.get_rng_state()
    one, again, other = (initial_vector(Mlp(8), (1, 8, 8), 10, s) for s in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_perceptron_without_width_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.hidden=0"):
        Mlp(hidden=0)


def test_the_initial_model_is_float32_and_drawn_anew_for_each_seed() -> None:
    vectors = [initial_vector(Mclr(), (1, 2, 2), 3, seed) for seed in range(5)]
    assert {vector.dtype for vector in vectors} == {np.dtype(np.float32)}
    assert len({vector.tobytes() for vector in vectors}) == 5


@pytest.mark.parametrize("settings", [Mclr(), Mlp(hidden=3)])
def test_a_vector_of_another_length_does_not_fit(settings: Mclr | Mlp) -> None:
    model = FlatModel(settings.build((1, 2, 2), 3))
    with pytest.raises(RuntimeError, match="size"):
        model.load(np.zeros(len(model.vector) + 1, np.float32))


@pytest.mark.parametrize("settings", [Mclr(), Mlp(hidden=3)])
def test_what_is_loaded_comes_out_again(settings: Mclr | Mlp) -> None:
    model = FlatModel(settings.build((1, 2, 2), 3))
    vector = np.arange(len(model.vector), dtype=np.float32)
    assert model.load(vector).to_vector().tolist() == vector.tolist()


def test_the_loaded_vector_stays_the_callers() -> None:
    received = np.float32([1, 2, 3])
    FlatModel(nn.Linear(2, 1)).load(received).vector.zero_()
    assert received.tolist() == [1, 2, 3]


def test_the_helper_of_softmax_regression_is_no_parameter_on_the_wire() -> None:
    module = Mclr().build((1, 8, 8), 10)
    assert sorted(module.state_dict()) == ["classifier.bias", "classifier.weight"]
    assert len(FlatModel(module).vector) == 650

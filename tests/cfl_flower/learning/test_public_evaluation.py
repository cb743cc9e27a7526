from __future__ import annotations

import numpy as np
import pytest
import torch

from cfl_flower.data.worlds.public import Samples
from cfl_flower.learning.public_evaluation import Validation
from cfl_flower.learning.testing import evaluate
from cfl_flower.models import CcflCnn, FlatModel, Mlp


@pytest.fixture
def sets() -> list[Samples]:
    made = torch.Generator().manual_seed(0)
    return [
        Samples(
            torch.rand(150 + 20 * k, 1, 16, 16, generator=made),
            torch.randint(0, 10, (150 + 20 * k,), generator=made),
        )
        for k in range(3)
    ]


@pytest.mark.parametrize("settings", [CcflCnn([4, 6]), Mlp(8)])
def test_losses_equal_those_of_a_plain_test(
    settings: CcflCnn | Mlp, sets: list[Samples]
) -> None:
    network = FlatModel(settings.build((1, 16, 16), 10))
    vectors = [FlatModel(settings.build((1, 16, 16), 10)).to_vector() for _ in range(3)]
    validation = Validation(network, sets)
    plain = FlatModel(settings.build((1, 16, 16), 10))
    for vector in vectors:
        found = [evaluate(plain.load(vector), each.x, each.y)[0] for each in sets]
        assert validation.losses(vector) == pytest.approx(found, rel=1e-5)
    own = validation.own(vectors)
    for vector, each, (loss, accuracy) in zip(vectors, sets, own, strict=True):
        expected, correct = evaluate(plain.load(vector), each.x, each.y)
        assert loss == pytest.approx(expected, rel=1e-5)
        assert accuracy == pytest.approx(correct / len(each.y))


def test_only_models_that_changed_are_tested_again(sets: list[Samples]) -> None:
    network = FlatModel(Mlp(8).build((1, 16, 16), 10))
    validation = Validation(network, sets)
    vectors = [FlatModel(Mlp(8).build((1, 16, 16), 10)).to_vector() for _ in range(3)]
    first = validation.own(vectors)
    assert validation.sizes.tolist() == [150, 170, 190]
    # What is known is not looked at again, be it written to meanwhile.
    vectors[0][:] = 0
    assert validation.own(vectors) == first
    changed = [vectors[0], vectors[1] + np.float32(1), vectors[2]]
    again = validation.own(changed)
    assert (again[0], again[2]) == (first[0], first[2])
    assert again[1] != first[1]


def test_any_number_of_threads_finds_the_same_bits() -> None:
    made = torch.Generator().manual_seed(0)
    x = torch.rand(1000, 1, 28, 28, generator=made)
    sets = [Samples(x, torch.randint(0, 10, (1000,), generator=made))]
    network = FlatModel(CcflCnn([4, 6]).build((1, 28, 28), 10))
    vector = network.to_vector()
    found = [Validation(network, sets, count).own([vector]) for count in (1, 2, 5)]
    assert found[0] == found[1] == found[2]

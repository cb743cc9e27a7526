from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from cfl_flower.client.evaluation import Evaluator
from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.view import View
from cfl_flower.learning.testing import BLOCK
from cfl_flower.models import FlatModel, Mclr, build_model
from cfl_flower.types import Vector

MANY = 1000


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Digits().load()[1]


@pytest.fixture
def model() -> FlatModel:
    return FlatModel(Mclr().build((1, 8, 8), 10))


@pytest.fixture
def vector() -> Vector:
    return build_model(Mclr(), (1, 8, 8), 10, seed=3).to_vector()


def view(pool: Pool, rows: list[int], degrees: float = 0.0, shift: int = 0) -> View:
    indices, names = np.array(rows, np.int64), (np.arange(10) + shift) % 10
    return View(pool, pool, indices, indices, degrees, names)


def test_a_shared_model_gives_the_numbers_of_a_model_tested_alone(pool, model, vector):
    # Rows on both sides of a block's end, one of them twice.
    mine = view(pool, [0, 7, 7, BLOCK - 1, BLOCK, len(pool.labels) - 1])
    alone = Evaluator(model, {}).evaluate(vector, mine)
    shared = Evaluator(model, {id(vector): MANY}).evaluate(vector, mine)
    assert shared[1] == alone[1]
    assert shared[0] == pytest.approx(alone[0], rel=1e-5)


def keep_scores(kept: list[torch.Tensor], scores: torch.Tensor, _: object) -> None:
    kept.append(scores.log_softmax(1))


def test_a_shift_of_the_logits_is_as_another_bias(pool, model, vector):
    mine = view(pool, [0, 7, 7, BLOCK - 1, BLOCK, len(pool.labels) - 1])
    shift = np.linspace(-2, 3, 10, dtype=np.float32)
    biased = vector.copy()
    # The network is one layer, and its bias the last of the vector.
    biased[-10:] += shift
    expected = Evaluator(model, {}).evaluate(biased, mine)
    assert expected != Evaluator(model, {}).evaluate(vector, mine)
    noted: list[list[torch.Tensor]] = [[], []]
    for sharers, scores in zip(({}, {id(vector): MANY}), noted, strict=True):
        note = partial(keep_scores, scores)
        evaluator = Evaluator(model, sharers)
        found = evaluator.evaluate(vector, mine, note=note, shift=shift)
        assert found[1] == expected[1]
        assert found[0] == pytest.approx(expected[0], rel=1e-5)
    torch.testing.assert_close(*map(torch.cat, noted))


def test_a_test_does_not_depend_on_earlier_tests(pool, model, vector):
    mine, other = view(pool, [1, 2, 3]), view(pool, [9, 300])
    first = Evaluator(model, {id(vector): MANY})
    other_model = np.zeros_like(vector)
    first.evaluate(vector, other)
    first.evaluate(other_model, other)
    fresh = Evaluator(model, {id(vector): MANY})
    assert first.evaluate(vector, mine) == fresh.evaluate(vector, mine)


def test_a_shared_model_alone_sees_the_pool_and_once_for_all_clients(
    pool, model, vector
):
    seen: list[int] = []
    model.module.register_forward_hook(lambda _, x, __: seen.append(len(x[0])))
    Evaluator(model, {id(vector): 2}).evaluate(vector, view(pool, [4, 5]))
    assert seen == [2], "a personal one sees its client's samples"
    evaluator = Evaluator(model, {id(vector): MANY})
    for row in range(20):
        evaluator.evaluate(vector, view(pool, [row]))
    assert sum(seen) == 2 + len(pool.labels)


@pytest.mark.parametrize("degrees", [0.0, 90.0])
def test_a_mixture_shares_the_predictions_of_each_rotation(
    pool, model, vector, degrees
):
    size, turns = len(pool.labels), (0.0, 90.0, 180.0, 270.0)
    rows = np.array([3, 3, 7, size + 2, 3 * size + 1, 4 * size - 1])
    mine = replace(view(pool, [], degrees), test_indices=rows, turns=turns)
    alone = Evaluator(model, {}).evaluate(vector, mine)
    seen: list[int] = []
    model.module.register_forward_hook(lambda _, x, __: seen.append(len(x[0])))
    evaluator = Evaluator(model, {id(vector): MANY})
    shared = evaluator.evaluate(vector, mine)
    assert shared == (pytest.approx(alone[0], rel=1e-5), alone[1])
    # Three of the four rotations, once for all clients; turned alike is the same.
    assert sum(seen) == 3 * size
    evaluator.evaluate(vector, view(pool, [1], (degrees + 90) % 360))
    assert sum(seen) == 3 * size
    # Four pools would be dearer than the few who share.
    few = Evaluator(model, {id(vector): size // 2})
    assert few.evaluate(vector, mine) == alone
    assert sum(seen) == 3 * size + len(rows)


def test_personal_models_at_one_address_are_not_confused(pool, model, vector):
    whole, evaluator = view(pool, list(range(len(pool.labels)))), Evaluator(model, {})
    own, losses = vector.copy(), set()
    for _ in range(3):
        losses.add(evaluator.evaluate(own, whole)[0])
        # As if this one were gone, and another one at its address.
        own *= 2
    assert len(losses) == 3

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as property_settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cfl_flower.errors import ConfigError
from cfl_flower.learning.gradients import mean_cross_entropy
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.testing import evaluate
from cfl_flower.learning.training import WHOLE, batches, least_batch, pretrain, train
from cfl_flower.models import FlatModel, Mclr, Mlp


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.rand(12, 1, 2, 3), torch.arange(12) % 4


def fresh(settings: Mclr | Mlp = Mclr()) -> FlatModel:  # noqa: B008
    torch.manual_seed(1)
    return FlatModel(settings.build((1, 2, 3), 4))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


OPTIONS = [
    *({}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"mu": 0.5}),
    {"momentum": 0.5, "weight_decay": 0.1, "mu": 0.5},
]


def robust(module: nn.Module, x: Tensor, y: Tensor, clear: bool) -> Tensor:
    """Return the loss of inputs that are moved up the loss, as FGSM moves them."""
    x = x.clone().requires_grad_()
    cross_entropy(module(x), y).backward()
    module.zero_grad(set_to_none=clear)
    return cross_entropy(module(x.detach() + 0.1 * x.grad.sign()), y)


@pytest.mark.parametrize("settings", [Mclr(), Mlp(hidden=5)])
def test_a_loss_may_take_gradients_away(settings, data):
    found = []
    for clear in (False, True):
        model = fresh(settings)
        loss = partial(robust, clear=clear)
        train(model, *data, LocalTraining(epochs=3), rng(), loss=loss)
        # So may whatever a client does before it trains as others do.
        model.module.zero_grad()
        train(model, *data, LocalTraining(epochs=1), rng())
        found.append(model.to_vector())
    assert not np.array_equal(found[0], fresh(settings).to_vector())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@property_settings(max_examples=60, deadline=None)
@given(
    of=st.sampled_from([Mclr(), Mlp(hidden=1), Mlp(hidden=5)]),
    options=st.sampled_from(OPTIONS),
    part=st.sampled_from([WHOLE, slice(0, 7), slice(5, None)]),
    corrected=st.booleans(),
    samples=st.integers(1, 23),
    batch_size=st.integers(1, 9),
)
def test_training_takes_autograds_steps(
    of, options, part, corrected, samples, batch_size
):
    """In double precision, with last batches that are smaller."""
    torch.manual_seed(samples)
    x = torch.rand(samples, 1, 2, 3).double()
    y = torch.randint(4, (samples,))
    model = FlatModel(of.build((1, 2, 3), 4).double())
    theirs = model.clone()
    anchor = torch.rand_like(model.weights)
    correction = torch.rand_like(model.weights[part]) if corrected else None
    settings = LocalTraining(epochs=2, batch_size=batch_size, **options)
    choices = {"anchor": anchor, "part": part, "correction": correction}
    train(model, x, y, settings, rng(), **choices)
    weights = theirs.weights[part]
    velocity = torch.zeros_like(weights)
    for x_batch, y_batch in batches(x, y, settings, rng()):
        theirs.gradient.zero_()
        cross_entropy(theirs.module(x_batch), y_batch).backward()
        gradient = theirs.gradient[part] + settings.weight_decay * weights
        gradient += settings.mu * (weights - anchor[part])
        gradient += correction if corrected else 0
        velocity = settings.momentum * velocity + gradient
        weights.sub_(velocity, alpha=settings.learning_rate)
    torch.testing.assert_close(model.weights, theirs.weights, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("of", [Mclr(), Mlp(hidden=5)])
def test_no_bit_depends_on_what_a_model_did_before(of, data):
    settings = LocalTraining(epochs=2, batch_size=5)
    one, other = fresh(of), fresh(of)
    start = one.to_vector()
    train(one, *data, settings, rng())
    for options in ({"mu": 0.1}, {"momentum": 0.9, "learning_rate": 1e38}):
        before = LocalTraining(batch_size=7, **options)
        train(other, *data, before, rng())
    assert not other.vector.isfinite().any()
    assert not other.gradient.isfinite().any()
    train(other.load(start), *data, settings, rng())
    assert torch.equal(one.vector, other.vector)
    # Autograd still takes a model whose steps it did not see.
    train(other, *data, settings, rng(), loss=mean_cross_entropy)
    train(one, *data, settings, rng())
    torch.testing.assert_close(one.vector, other.vector)


def test_every_pass_shuffles_all_samples_again():
    y = torch.arange(7)
    settings = LocalTraining(epochs=2, batch_size=3)
    taken = [part.tolist() for _, part in batches(y, y, settings, rng())]
    assert [len(part) for part in taken] == [3, 3, 1] * 2
    one, two = ([i for part in half for i in part] for half in (taken[:3], taken[3:]))
    assert sorted(one) == sorted(two) == list(range(7))
    assert one != two


def test_steps_cycle_over_the_data_and_override_epochs():
    y = torch.arange(4)
    settings = LocalTraining(epochs=9, steps=5, batch_size=2)
    sizes = [len(part) for _, part in batches(y, y, settings, rng())]
    assert sizes == [2] * 5
    # A last batch of one sample is one.
    once = LocalTraining(epochs=1, batch_size=10)
    assert [once.count_steps(n) for n in (0, 10, 11)] == [0, 1, 2]
    assert once.count_samples(11) == 11


def test_training_without_samples_or_weights_changes_nothing(data):
    model = fresh()
    before = model.vector.clone()
    train(model, torch.zeros(0, 1, 2, 3), torch.zeros(0).long(), LocalTraining(), rng())
    train(model, *data, LocalTraining(), rng(), part=slice(0, 0))
    assert torch.equal(model.vector, before)
    assert model.passes == 0


def test_dropout_works_in_training_and_not_in_tests():
    model = FlatModel(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 4)))
    x, y = torch.ones(8, 1, 2, 3), torch.zeros(8).long()
    assert evaluate(model, x, y) == evaluate(model, x, y)
    train(model, x, y, LocalTraining(epochs=1), rng())
    assert model.module.training
    evaluate(model, x, y)
    assert not model.module.training


def test_a_server_pretrains_as_a_client_trains_and_refuses_to_diverge(data):
    model, threads = fresh(), torch.get_num_threads()
    start = model.to_vector()
    settings = LocalTraining(epochs=3, batch_size=5, learning_rate=0.3)
    found = pretrain(model, start, *data, settings, rng(), "shared")
    train(model.load(start), *data, settings, rng())
    assert found.tolist() == model.to_vector().tolist() != start.tolist()
    assert torch.get_num_threads() == threads
    wild, huge = LocalTraining(learning_rate=1e10), 1e30 * data[0]
    with pytest.raises(ConfigError, match=r"^shared\.learning_rate="):
        pretrain(model, start, huge, data[1], wild, rng(), "shared")


# The last batch of a pass


def normalised() -> FlatModel:
    torch.manual_seed(1)
    layers = nn.Flatten(), nn.BatchNorm1d(6), nn.Linear(6, 4)
    return FlatModel(nn.Sequential(*layers))


@pytest.mark.parametrize(
    ("last_batch", "samples", "least", "sizes"),
    [
        ("keep", 12, 1, [5, 5, 2]),
        ("drop", 12, 1, [5, 5]),
        ("drop", 10, 1, [5, 5]),
        ("drop", 4, 1, [4]),
        ("keep", 11, 1, [5, 5, 1]),
        ("keep", 11, 2, [5, 5]),
        ("keep", 1, 2, []),
    ],
)
def test_which_batches_a_pass_has(last_batch, samples, least, sizes):
    local = LocalTraining(epochs=2, batch_size=5, last_batch=last_batch)
    x = torch.zeros(samples, 1)
    drawn = [len(y) for _, y in batches(x, x, local, rng(), least)]
    assert drawn == sizes * 2
    assert local.count_steps(samples, least) == len(sizes) * 2
    assert local.count_samples(samples, least) == sum(drawn)


def test_batch_norm_does_not_cost_a_client_its_training(data):
    x, y = data
    local = LocalTraining(epochs=1, batch_size=11)
    model, without = normalised(), normalised()
    start = model.to_vector()
    train(model, x, y, local, rng())
    # The twelfth sample of the pass is a batch of its own.
    first = torch.from_numpy(rng().permutation(12)[:11])
    train(without, x[first], y[first], local, np.random.default_rng(7))
    assert np.allclose(model.to_vector(), without.to_vector(), atol=1e-6)
    assert not np.array_equal(model.to_vector(), start)
    train(model.load(start), x[:1], y[:1], local, rng())
    assert np.array_equal(model.to_vector(), start)


def test_batch_norm_of_images_still_takes_one_sample():
    torch.manual_seed(1)
    layers = nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(6, 4)
    model = FlatModel(nn.Sequential(*layers))
    assert least_batch(model, torch.rand(3, 1, 2, 3)) == 1
    assert least_batch(normalised(), torch.rand(3, 1, 2, 3)) == 2

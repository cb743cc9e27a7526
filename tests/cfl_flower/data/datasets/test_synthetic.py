from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from cfl_flower.data.datasets.synthetic import Synthetic
from tests.cfl_flower.data.pools import owners


def means(dataset: Synthetic) -> np.ndarray:
    train, _ = dataset.load()
    x = train.x.numpy()
    return np.stack([x[owners(train) == k].mean(0) for k in range(dataset.devices)])


def test_the_default_is_near_the_published_total() -> None:
    sizes = Synthetic().sizes()
    assert len(sizes) == 100
    assert sizes.min() >= 50
    assert sizes.sum() == 72_855
    assert sizes.max() == 12_737


def test_every_device_owns_its_samples_in_both_parts() -> None:
    dataset = Synthetic(devices=7, test_fraction=0.25)
    train, test = dataset.load()
    assert train.x.shape[1:] == dataset.shape
    assert train.x.dtype == torch.float32
    held = np.bincount(owners(test))
    sizes = np.bincount(owners(train)) + held
    assert sizes.tolist() == dataset.sizes().tolist()
    assert held.tolist() == np.rint(sizes * 0.25).tolist()
    assert set(np.unique(train.labels)) <= set(range(dataset.classes))


def test_every_load_gives_the_same_samples_and_another_seed_others() -> None:
    one, again = Synthetic(devices=3).load()[0], Synthetic(devices=3).load()[0]
    assert torch.equal(one.x, again.x)
    assert torch.equal(one.y, again.y)
    other = Synthetic(devices=3, data_seed=24).load()[0]
    assert not torch.equal(one.x[:50], other.x[:50])


def test_the_variance_of_input_j_is_j_to_the_minus_1_2() -> None:
    train, _ = Synthetic(devices=12).load()
    largest = np.bincount(owners(train)).argmax()
    x = train.x.numpy()[owners(train) == largest]
    assert len(x) > 500
    expected = np.arange(1, 61) ** -1.2
    assert x.var(0) / expected == pytest.approx(np.ones(60), abs=0.35)


def test_one_linear_model_explains_a_device_but_not_another() -> None:
    train, test = Synthetic(devices=12).load()
    first, second = np.bincount(owners(train)).argsort()[-2:]
    mine, theirs = owners(train) == first, owners(test) == second
    model = LogisticRegression(max_iter=2000).fit(train.x[mine], train.labels[mine])
    own = owners(test) == first
    assert model.score(test.x[own], test.labels[own]) > 0.8
    assert model.score(test.x[theirs], test.labels[theirs]) < 0.5


def test_beta_moves_the_devices_inputs_apart() -> None:
    # The mean over inputs of v_k ~ N(B_k, 1) varies by beta^2 + 1 / 60.
    near = means(Synthetic(beta=0.0, devices=60)).mean(1)
    far = means(Synthetic(beta=3.0, devices=60)).mean(1)
    assert near.std() < 0.3
    assert 2.0 < far.std() < 4.0

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from cfl_flower.data.datasets.synthetic import Synthetic
from tests.cfl_flower.data.pools import owners


def test_the_default_is_near_the_published_total():
    sizes = Synthetic().sizes()
    assert len(sizes) == 100
    assert sizes.min() >= 50
    assert sizes.sum() == 72_855
    assert sizes.max() == 12_737


def test_every_device_owns_its_samples_in_both_parts():
    dataset = Synthetic(devices=7, test_fraction=0.25)
    train, test = dataset.load()
    assert train.x.shape[1:] == dataset.shape
    assert train.x.dtype == torch.float32
    held = np.bincount(owners(test))
    sizes = np.bincount(owners(train)) + held
    assert sizes.tolist() == dataset.sizes().tolist()
    assert held.tolist() == np.rint(sizes * 0.25).tolist()
    assert set(np.unique(train.labels)) <= set(range(dataset.classes))


def test_the_variance_of_input_j_is_j_to_the_minus_1_2():
    train, _ = Synthetic(devices=12).load()
    largest = np.bincount(owners(train)).argmax()
    x = train.x.numpy()[owners(train) == largest]
    assert len(x) > 500
    expected = np.arange(1, 61) ** -1.2
    assert x.var(0) / expected == pytest.approx(np.ones(60), abs=0.35)


def test_one_linear_model_explains_a_device_but_not_another():
    train, test = Synthetic(devices=12).load()
    first, second = np.bincount(owners(train)).argsort()[-2:]
    mine, theirs = owners(train) == first, owners(test) == second
    model = LogisticRegression(max_iter=2000).fit(train.x[mine], train.labels[mine])
    own = owners(test) == first
    assert model.score(test.x[own], test.labels[own]) > 0.8
    assert model.score(test.x[theirs], test.labels[theirs]) < 0.5

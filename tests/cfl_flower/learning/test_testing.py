"""Predictions and tests on hand-computed cases."""

import numpy as np
import pytest
import torch
from torch import nn

from cfl_flower.learning.testing import (
    evaluate,
    information,
    predictions,
    sample_losses,
)
from cfl_flower.models import FlatModel, Mclr


@pytest.mark.parametrize("block", [2, 128])
def test_evaluation_equals_the_values_computed_by_hand(block, monkeypatch):
    # Two classes, logits (x, 0): the loss is log(1 + e^-x) for label 0. With blocks of
    # two, the third sample is one of its own.
    monkeypatch.setattr("cfl_flower.learning.testing.BLOCK", block)
    model = FlatModel(nn.Linear(1, 2))
    model.load(np.float32([1, 0, 0, 0]))
    x, y = torch.tensor([[2.0], [-2.0], [3.0]]), torch.tensor([0, 0, 0])
    loss, correct = evaluate(model, x, y)
    assert loss == pytest.approx(np.log1p(np.exp([-2, 2, -3])).mean())
    assert correct == 2
    assert predictions(model, x).tolist() == [0, 1, 0]
    losses = sample_losses(model, x, y)
    assert losses.numpy() == pytest.approx(np.log1p(np.exp([-2, 2, -3])))
    # Forward passes, once for each of the three.
    assert model.passes == 9


@pytest.mark.parametrize(
    ("slope", "bias", "told"),
    [(100, 0, np.log(2)), (0, 0, 0), (0, 100, 0), (1, 0, None)],
)
def test_predictions_tell_most_if_they_are_sure_and_differ(slope, bias, told):
    # Logits (slope x + bias, 0) of -2 and 2: sure of both labels, unsure, of one label.
    model = FlatModel(nn.Linear(1, 2))
    model.load(np.float32([slope, 0, bias, 0]))
    if told is None:
        share = 1 / (1 + np.exp(-2))
        told = np.log(2) + share * np.log(share) + (1 - share) * np.log(1 - share)
    found = information(model, torch.tensor([[-2.0], [2.0]]))
    assert found == pytest.approx(told, abs=1e-6)


def test_testing_without_samples_is_an_error():
    model = FlatModel(Mclr().build((1, 2, 3), 4))
    with pytest.raises(ValueError, match="no test samples"):
        evaluate(model, torch.zeros(0, 1, 2, 3), torch.zeros(0).long())

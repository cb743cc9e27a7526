from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cfl_flower.learning.gradients import full_gradient, gradient_writer
from cfl_flower.models import FlatModel, Mlp


def samples() -> tuple[Tensor, Tensor]:
    return torch.rand(12, 1, 2, 3), torch.arange(12) % 4


def test_the_gradient_in_blocks_equals_that_of_all_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    x, y = samples()
    model = FlatModel(Mlp(hidden=5).build((1, 2, 3), 4))
    with torch.no_grad():
        gradient_writer(model)(x, y)
    expected = model.gradient.clone()
    # The last of 12 samples' three blocks is a smaller one.
    monkeypatch.setattr("cfl_flower.learning.gradients.BLOCK", 5)
    torch.testing.assert_close(full_gradient(model, x, y), expected)
    assert not full_gradient(model, x[:0], y[:0]).any()

"""Privacy losses: the Gaussian mechanism's own epsilon, and sums of losses."""

import math
import sys

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from cfl_flower.errors import ConfigError
from cfl_flower.privacy.accounting import PrivacyLoss, epsilon_of, require_accountant
from cfl_flower.privacy.clipping import clipped_update


def test_what_is_clipped_is_the_update():
    received = np.float32([10, 10])
    update = clipped_update(np.float32([13, 14]), received, 1.0)
    assert update == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(("noise", "delta"), [(1, 1e-5), (0.1, 1e-6), (20, 1e-3)])
def test_epsilon_of_one_release_is_the_closed_form(noise, delta):
    pytest.importorskip("dp_accounting")
    epsilon, half = epsilon_of(noise**-2, delta), 1 / (2 * noise)
    lost = ndtr(half - epsilon * noise)
    lost -= math.exp(epsilon + log_ndtr(-half - epsilon * noise))
    assert lost == pytest.approx(delta, rel=1e-4)


def test_epsilon_of_several_releases():
    pytest.importorskip("dp_accounting")
    # Four with twice the noise, or one: sum 1 / z^2 is 1.
    loss = PrivacyLoss()
    for _ in range(4):
        loss.add(["a"], 2.0**-2)
    loss.add(["c"], 1.0)  # another one's loss changes nothing of it
    assert epsilon_of(loss.of("a"), 1e-5) == epsilon_of(1, 1e-5)
    assert epsilon_of(1, 1e-5) == pytest.approx(4.377, abs=1e-3)
    assert epsilon_of(loss.of("b"), 1e-5) == 0


def test_without_the_library_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match="none, or pip install dp-accounting first"):
        require_accountant("local")

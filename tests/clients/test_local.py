from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clients.base import Surroundings
from clients.local import LocalClient

Surround = Callable[..., Surroundings]


def own_model(around: Surroundings, before: int) -> np.ndarray:
    return around.state.load(before)["model"]


def test_a_client_goes_on_from_its_own_model(surround: Surround) -> None:
    around = surround(1)
    arrays, count, _ = LocalClient(around).fit([], {})
    assert arrays == []
    assert count == len(around.stream.view(2, 1).labels)
    later = surround(4)
    LocalClient(later).fit([], {})
    expected, _ = LocalClient(later).train_from(own_model(around, before=4))
    assert np.array_equal(own_model(around, before=5), expected)


def test_a_repeated_round_starts_from_the_model_before_it(surround: Surround) -> None:
    around = surround(1)
    LocalClient(around).fit([], {})
    once = own_model(around, before=2)
    LocalClient(around).fit([], {})
    assert np.array_equal(own_model(around, before=2), once)


def test_it_is_tested_with_the_model_of_this_round(surround: Surround) -> None:
    around = surround(1)
    before = LocalClient(around).evaluate([], {})
    LocalClient(around).fit([], {})
    after = LocalClient(around).evaluate([], {})
    assert after[0] < before[0]

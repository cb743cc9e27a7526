from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.engine.presence import FOREVER, Moves, draw_presence
from cfl_flower.engine.simulated_devices import Devices
from cfl_flower.errors import ConfigError

ROUNDS = st.lists(st.integers(2, 20), max_size=4, unique=True)


@given(st.integers(1, 60), ROUNDS, ROUNDS, st.floats(0, 0.5), st.floats(0, 0.49))
def test_as_many_come_and_go_as_the_settings_say(
    count: int, joins: list[int], leaves: list[int], joining: float, leaving: float
) -> None:
    presence = draw_presence(count, Moves(joins, joining), Moves(leaves, leaving), 3)
    come = round(joining * count) if joins else 0
    gone = round(leaving * count) if leaves else 0
    there = [presence.there(number) for number in range(1, 22)]
    assert there[0].sum() == count - come
    assert there[-1].sum() == count - gone
    for number, (before, after) in enumerate(pairwise(there), 2):
        assert (~before & after).any() <= (number in joins)
        assert (before & ~after).any() <= (number in leaves)
    assert (presence.first > 1).sum() == come
    assert (presence.last < FOREVER).sum() == gone
    # A client does one of both at most.
    assert not ((presence.first > 1) & (presence.last < FOREVER)).any()
    # All rounds of a kind have alike many, to one.
    for rounds, found in ((joins, presence.first), (leaves, presence.last + 1)):
        sizes = [int((found == number).sum()) for number in rounds]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"joins": [1]}, r"devices.joins=\[1\] is not allowed; use rounds from 2 on"),
        ({"joins": [2], "leaves": [3], "joining": 0.8}, "devices.joining"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Devices(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{"joins": [2], "joining": 0.95}, {"leaves": [2], "leaving": 0.95}]
)
def test_somebody_of_few_clients_is_there(settings: dict[str, object]) -> None:
    devices = Devices(**settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="less with 6 clients: none is in round"):
        devices.open_presence(6, seed=0)
    assert devices.open_presence(100, seed=0).there(2).any()

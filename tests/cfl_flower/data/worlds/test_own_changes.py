"""A change of one's own is checked: what it alters, and for whom."""

from typing import Any

import numpy as np
import pytest

from cfl_flower.data.worlds.drift import Change, Occasion
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.world import World, allocate, alter, relabel_clients
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.worlds.test_drift import timeline


def test_a_change_cannot_write_into_the_world_before():
    class InPlace(Change):
        def change(self, world: World, chosen: np.ndarray, occasion: Occasion) -> World:
            world.degrees[chosen] += 90
            return world

    line = timeline(InPlace(rounds=[2]))
    with pytest.raises(ConfigError, match=r"InPlace.change writes into .* alter\("):
        line.world(2)
    assert not line.world(1).degrees.any()
    with pytest.raises(ValueError, match="read-only"):
        line.world(1).allocations[0].layout.demand[0] = 2


class Own(Change):
    """A change of one's own, by a function of world, mask and occasion."""

    made: Any = None

    def change(self, world: World, chosen: np.ndarray, occasion: Occasion) -> World:
        found: World = self.made(world, chosen)
        return found


FEW = np.arange(20) < 2


NAMES = np.arange(10)[::-1]


WRONG: list[tuple[str, Any, str]] = [
    *(
        (name, change, "the clients to alter=.* a mask")
        for name, who in {
            "indices": np.array([3]),
            "several": np.array([3, 4]),
            "integers": ~FEW.astype(int),
            "too few": FEW[:5],
            "a row too much": FEW[None],
        }.items()
        for change in (
            lambda w, _, who=who: alter(w, who, degrees=90.0),
            lambda w, _, who=who: relabel_clients(w, who, NAMES),
            lambda w, _, who=who: allocate(w, w.allocations[0].layout, who),
        )
    ),
    ("a misspelt trait", lambda w, c: alter(w, c, rotation=9.0), "trait to alter=rot"),
    ("another's trait", lambda w, c: alter(w, c, looked=3), "trait to alter=looked"),
    (
        "labels' mask",
        lambda w, c: alter(w, w.visible, degrees=9.0),
        "degrees becomes=",
    ),
    ("too short", lambda w, c: alter(w, c, degrees=np.ones(3)), "degrees becomes="),
    (
        "wide",
        lambda w, c: alter(w, c, degrees=np.ones((20, 1))),
        "degrees becomes=",
    ),
    ("a text", lambda w, c: alter(w, c, source="x"), "what source becomes"),
    ("a half", lambda w, c: alter(w, c, groups=1.5), "what groups becomes=float64"),
    ("no value", lambda w, c: alter(w, c, degrees=None), "degrees becomes="),
    ("short names", lambda w, c: relabel_clients(w, c, NAMES[:3]), "shape of names"),
    ("tall", lambda w, c: relabel_clients(w, c, NAMES[:, None]), "shape of names"),
    ("eleven", lambda w, c: relabel_clients(w, c, NAMES + 1), r"relabel .*=\[10\]"),
    ("less", lambda w, c: alter(w, c, relabel=NAMES - 1), r"relabel .*=\[-1\]"),
    ("nobody's", lambda w, c: alter(w, c, source=20), r"source after .* 0 to 19"),
    ("no angle", lambda w, c: alter(w, c, degrees=np.nan), r"degrees .*=\[nan\]"),
    ("nothing", lambda w, c: None, "what Own.change returns=NoneType .* a World"),
    ("a pair", lambda w, c: (w, c), "what Own.change returns=tuple .* a World"),
    (
        "draws",
        lambda w, c: alter(w, c, degrees=float(np.random.random())),
        "Own.change draws from np.random",
    ),
    (
        "a draw of normal numbers",
        lambda w, c: alter(w, c, degrees=float(np.random.normal())),
        "Own.change draws from np.random",
    ),
]


@pytest.mark.parametrize(("made", "told"), [each[1:] for each in WRONG])
def test_a_change_of_one_s_own_that_is_wrong_is_told(made, told, monkeypatch):
    monkeypatch.setattr(Own, "made", staticmethod(made))
    with pytest.raises(ConfigError, match=told):
        timeline(Own(rounds=[2])).world(2)


@pytest.mark.parametrize(
    "values",
    [
        {"degrees": 90.0},
        {"degrees": np.arange(20.0)},
        {"relabel": NAMES},
        {"relabel": np.tile(NAMES, (20, 1))},
        {"source": np.arange(20)[:, None]},
        {"visible": np.zeros((1, 10), bool)},
    ],
)
def test_a_change_of_one_s_own_concerns_whom_it_says(values, monkeypatch):
    monkeypatch.setattr(Own, "made", staticmethod(lambda w, _: alter(w, FEW, **values)))
    line = timeline(Own(rounds=[2]), partition=Partition())
    (name,) = values
    changed = getattr(line.world(2), name) != getattr(line.world(1), name)
    assert not changed[~FEW].any()


@pytest.mark.parametrize("made", [None, (1, 2), np.ones((20, 10))])
def test_a_layout_of_another_type_is_told(made):
    class Mine(Partition):
        def layout(self, *drawn: Any) -> Any:
            return made

    with pytest.raises(ConfigError, match=r"what Mine.layout returns=.* a Layout"):
        timeline(partition=Mine()).world(1)

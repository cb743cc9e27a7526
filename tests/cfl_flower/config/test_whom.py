"""Whom an event of a drift concerns, and whether it does anything."""

from __future__ import annotations

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.config.warnings import find_warnings
from cfl_flower.run_config import RunConfig

FIRST = "drift.steps.first"
NAMED = [
    ("drift=rotate drift.ids=[3,7]", "drift", [3, 7]),
    ("drift=rotate drift.ids=[3]", "drift", [3]),
    ("drift=rotate drift.modulo=20 drift.residues=[1]", "drift", [1, 21]),
    ("drift=concept_half drift.ids=[0,1,2]", "drift", [0, 1, 2]),
    ("drift=concept_half +drift.ids=[4]", "drift", [4]),
    ("drift=noise drift.ids=[2,4]", "drift", [2, 4]),
    ("drift=test_time drift.ids=[2]", "drift", [2]),
    ("drift=recurring_covariate drift.ids=[0]", "drift", [0]),
    (f"drift=sudden {FIRST}.ids=[9]", FIRST, [9]),
    (f"drift=gradual {FIRST}.ids=[5,6]", FIRST, [5, 6]),
    (
        "drift=[rotate,noise] drift.steps.rotate.ids=[1,2]",
        "drift.steps.rotate",
        [1, 2],
    ),
    (
        "drift=[rotate,noise] drift.steps.noise.ids=[4]",
        "drift.steps.noise",
        [4],
    ),
    ("drift=rotate drift.ids=null", "drift", None),
    ("drift=rotate drift.ids=[3,7] drift.fraction=0.5", "drift", None),
]
"""Overrides, the key of an event, and the clients that it concerns; None for some."""


def compose(overrides: str) -> RunConfig:
    return compose_config(["rounds=14", *overrides.split()])


def warned(overrides: str) -> list[str]:
    return find_warnings(compose(overrides))


@pytest.mark.parametrize(("overrides", "place", "clients"), NAMED, ids=str)
def test_clients_that_are_named_are_all_that_an_event_concerns(
    overrides: str, place: str, clients: list[int] | None
) -> None:
    config = compose(f"{overrides} rounds=40")
    event = config.drift.events[place]
    able = np.flatnonzero(event.candidates(config.clients)).tolist()
    some = event.fraction < 1
    assert (None if some else able) == clients


def test_a_user_who_sets_a_share_of_named_clients_is_told() -> None:
    (said,) = warned("drift=rotate drift.ids=[3,7] drift.fraction=0.5 drift.rounds=[3]")
    assert "drift changes 1 of 40 clients at a time" in said
    assert "ids=[3, 7] and fraction=0.5" in said


BESIDE = "drift=[rotate,{0}] drift.steps.rotate.rounds=[3] drift.steps.{0}.rounds=[4]"
IDLE = [
    *((kind, "strength=0") for kind in ("noise", "brightness")),
    ("feature_shift", "strength=0"),
    ("sensor_failure", "strength=0"),
    ("swap_all", "probability=0"),
    ("concept_half", "fraction=0.01"),
    ("test_time", "strength=0"),
]


@pytest.mark.parametrize(("drift", "setting"), IDLE, ids=str)
def test_an_event_that_changes_nothing_is_told_alone_and_beside_another(
    drift: str, setting: str
) -> None:
    (said,) = warned(f"{BESIDE.format(drift)} drift.steps.{drift}.{setting}")
    assert said.startswith(f"nothing changes by drift.steps.{drift}, ")
    alone = setting.replace(f"drift.steps.{drift}.", "drift.")
    (said,) = warned(f"drift={drift} drift.rounds=[4] drift.{alone}")
    assert said.startswith(f"nothing changes with drift={drift}: ")


@pytest.mark.parametrize("drift", ["rotate", "noise", "swap_all", "regroup"])
def test_an_event_that_changes_something_is_not(drift: str) -> None:
    rounds = "[]" if drift == "swap_all" else "[3]"
    assert warned(f"drift={drift} drift.rounds={rounds}") == []

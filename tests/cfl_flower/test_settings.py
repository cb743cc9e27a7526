from __future__ import annotations

from typing import Any

import pytest

from cfl_flower.building import build, locate, settings_class
from cfl_flower.client.faults import Faults
from cfl_flower.data.worlds.partition import LabelGroups, Natural
from cfl_flower.errors import ConfigError
from cfl_flower.settings import settings
from strategies.fielding import Fielding, FieldingSettings


def test_a_client_rebuilds_nested_settings_from_plain_data() -> None:
    node = {
        "name": "fielding",
        "_target_": "strategies.fielding.Fielding",
        "distance": "js",
        "scan": {
            "_target_": "cfl_flower.clustering.algorithms.KMeansScan",
            "largest": 7,
        },
    }
    settings = build({"strategy": node, "seed": 3})
    assert settings["seed"] == 3
    assert settings["strategy"].distance == "js"
    assert settings["strategy"].scan.largest == 7


def test_the_settings_of_a_strategy_are_found_through_it() -> None:
    assert settings_class("strategies.fielding.Fielding") is FieldingSettings
    assert settings_class("cfl_flower.data.worlds.partition.LabelGroups") is LabelGroups
    assert locate("strategies.fielding.Fielding") is Fielding


def test_faults_may_add_up_to_certainty() -> None:
    assert Faults(raises=0.5, hangs=0.5).raises == 0.5


def test_plain_data_without_a_target_stay_plain() -> None:
    node = {"rounds": 3, "name": "kept", "list": [1, 2], "deep": {"name": "kept"}}
    assert build(node) == node


def test_a_check_that_fails_by_itself_keeps_its_words() -> None:
    @settings("strategy")
    class Broken:
        rate: float = 0.1

        def __post_init__(self) -> None:
            raise ValueError("a rate without a unit")

    with pytest.raises(ConfigError, match=r"^strategy: .*a rate without a unit"):
        Broken()


@pytest.mark.parametrize("name", ["step", "minimum"])
def test_a_value_without_annotation_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"partition: Bare.{name}=3 .*{name}: int ="):
        settings("partition")(type("Bare", (LabelGroups,), {name: 3}))


def test_constants_and_what_a_base_declares_need_no_annotation() -> None:
    values: dict[str, Any] = {"SIZES": (1, 2), "unused": (), "_kept": 0}
    made: Any = settings("partition")(type("Own", (Natural,), values))
    assert made.__pydantic_fields__.keys() == Natural.__pydantic_fields__.keys()
    assert (made().SIZES, made().unused) == ((1, 2), ())

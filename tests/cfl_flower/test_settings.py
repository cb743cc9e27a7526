from __future__ import annotations

import pytest

from cfl_flower.data.partition import LabelGroups
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Faults, System, build, locate, require, settings_class
from strategies.fielding import Fielding, FieldingSettings


def test_a_client_rebuilds_nested_settings_from_plain_data() -> None:
    node = {
        "name": "fielding",
        "_target_": "strategies.fielding.Fielding",
        "distance": "js",
        "scan": {"_target_": "cfl_flower.clustering.KMeansScan", "largest": 7},
    }
    settings = build({"strategy": node, "seed": 3})
    assert settings["seed"] == 3
    assert settings["strategy"].distance == "js"
    assert settings["strategy"].scan.largest == 7


def test_the_settings_of_a_strategy_are_found_through_it() -> None:
    assert settings_class("strategies.fielding.Fielding") is FieldingSettings
    assert settings_class("cfl_flower.data.partition.LabelGroups") is LabelGroups
    assert locate("strategies.fielding.Fielding") is Fielding


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("os.system", "outside of cfl_flower, strategies, clients"),
        ("strategies.nothing.Nothing", "cannot be imported"),
        ("strategies.fielding.Nothing", "cannot be imported"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        locate(path)


def test_a_value_out_of_range_is_named_with_what_is_allowed() -> None:
    with pytest.raises(ConfigError) as caught:
        require(False, "rounds", 0, "an integer of at least 1")
    assert str(caught.value) == "rounds=0 is not allowed; use an integer of at least 1"


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        (System, {"task_timeout": -1}),
        (System, {"evaluate_every": 0}),
        (System, {"checkpoint_every": 0}),
        (Faults, {"raises": 1.1}),
        (Faults, {"nan": -0.1}),
        (Faults, {"raises": 0.6, "drops": 0.6}),
    ],
)
def test_settings_check_themselves(settings: type, values: dict) -> None:
    with pytest.raises(ConfigError, match="not allowed"):
        settings(**values)


def test_faults_may_add_up_to_certainty() -> None:
    assert Faults(raises=0.5, hangs=0.5).raises == 0.5

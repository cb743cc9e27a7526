from __future__ import annotations

import re
from pathlib import Path

import pytest

from cfl_flower.building import build
from cfl_flower.config.compose import (
    compose_config,
    compose_run_config,
    compose_sweep,
)
from cfl_flower.config.options import GROUPS
from cfl_flower.config.overrides import CONF
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return compose_config(["rounds=7", "strategy.local.mu=0.5", "output_dir=here"])


def test_paths_are_absolute(config: RunConfig) -> None:
    assert config.output_dir == str(Path("here").absolute())
    assert Path(config.data_dir).is_absolute()


def test_a_client_rebuilds_what_the_server_composed(config: RunConfig) -> None:
    rebuilt = build(config.resolved)
    assert rebuilt["strategy"] == config.strategy
    assert rebuilt["partition"] == config.partition
    assert rebuilt["drift"] == config.drift
    assert rebuilt["system"] == config.system


def test_the_default_folder_names_strategy_drift_and_seed() -> None:
    folder = Path(compose_config(["seed=4", "drift=none"]).output_dir)
    assert folder.name.endswith("-fielding-none-s4")
    assert folder.parts[-3] == "outputs"


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["drift=[rotate,noise]", "drift=[noise,swap_all]"], "noise+swap_all"),
        (["drift=[rotate,noise]", "drift=none"], "none"),
        (["drift=none", "drift=[rotate,noise]"], "rotate+noise"),
        (["drift=rotate", "drift=noise"], "noise"),
    ],
)
def test_of_an_override_that_is_given_twice_the_last_one_counts(
    overrides: list[str], name: str
) -> None:
    config = compose_config([*overrides, "rounds=3", "rounds=9"])
    assert (config.names["drift"], config.rounds) == (name, 9)


def test_runs_of_a_sweep_without_a_folder_get_one_each() -> None:
    configs = compose_sweep("rounds=5,6")
    folders = [Path(config.output_dir) for config in configs]
    assert [folder.name for folder in folders] == ["rounds5", "rounds6"]
    assert folders[0].parent.name.endswith("-sweep")


@pytest.mark.slow
def test_setting_of_a_method_may_have_the_name_of_anothers_group() -> None:
    config = compose_config(["strategy=stocfl", "strategy.representation=difference"])
    assert config.strategy.representation == "difference"
    with pytest.raises(ConfigError, match="use strategy/representation= with one of"):
        compose_config(["strategy=fielding", "strategy.representation=gradient"])


EXPERIMENT = """
# @package _global_
options:
  strategy:
    fedprox:
      local: {mu: 0.25}
      weighting: plain
  dataset:
    digits: {size: 28}
"""


def test_an_experiment_has_settings_for_the_chosen_options_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "conf" / "experiment" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(EXPERIMENT.lstrip())
    monkeypatch.chdir(tmp_path)
    found = compose_config(["experiment=mine", "strategy=fedprox"])
    assert (found.strategy.local.mu, found.strategy.weighting) == (0.25, "plain")
    assert found.dataset.size == 28
    assert "options" not in found.resolved
    assert found.overrides == ["experiment=mine", "strategy=fedprox"]
    other = compose_config(["experiment=mine", "strategy=fedavg"]).strategy
    assert (other.local.mu, other.weighting) == (0, "samples")
    said = ["experiment=mine", "strategy=fedprox", "strategy.local.mu=0.5"]
    assert compose_config(said).strategy.local.mu == 0.5, "the user has the last word"
    own.write_text(EXPERIMENT.lstrip().replace("fedprox", "fedprx"))
    with pytest.raises(ConfigError, match=r"options\.strategy\.fedprx .*fedprox"):
        compose_config(["experiment=mine"])


def test_times_of_a_drift_may_be_shares_of_the_run() -> None:
    lines = ["drift=staggered", "partition=iid", "rounds=20"]
    config = compose_config([*lines, "drift.rounds=[0.25,0.5,19]"])
    assert config.timeline.rounds == [6, 11, 19]
    assert config.resolved["drift"]["rounds"] == [6, 11, 19]
    with pytest.raises(ConfigError, match=r"drift.rounds=\[11, 3\] .* ascending"):
        compose_config([*lines, "drift=sudden", "drift.rounds=[0.5,3]"])


def test_every_option_of_every_group_composes() -> None:
    # Methods, networks and datasets have suites of their own.
    others = GROUPS.keys() - {"strategy", "model", "dataset"}
    for group in (path for path in CONF.iterdir() if path.name in others):
        for option in group.glob("*.yaml"):
            rest = ["drift=none"] if group.name == "partition" else []
            try:
                config = compose_config([f"{group.name}={option.stem}", *rest])
            except ConfigError as error:
                refusals = {
                    "drift": "use .* images of three channels",
                    "privacy": "^strategy/privacy=none is not allowed; use client",
                }
                assert re.search(refusals[group.name], str(error))
            else:
                assert config.names[group.name] == option.stem


def test_equal_overrides_give_equal_true_concepts(config: RunConfig) -> None:
    again = compose_config(config.overrides)
    assert again.resolved == config.resolved
    for round in (1, 13, 25):
        one, two = (each.timeline.concepts(round) for each in (again, config))
        assert one.tolist() == two.tolist()


def test_the_run_config_of_flower_is_checked_as_it_is_typed() -> None:
    asked = {"overrides": "", "strategy": "ifca", "num-server-rounds": 5, "seed": "1,2"}
    configs = compose_run_config(asked)
    assert [config.seed for config in configs] == [1, 2]
    assert {(each.names["strategy"], each.rounds) for each in configs} == {("ifca", 5)}
    for key, value, said in (
        ("num-server-rounds", 0, "num-server-rounds=0 is not allowed"),
        ("local-epochs", "many", "local-epochs=many is not allowed"),
        ("drift", "suden", "drift=suden is not allowed"),
    ):
        with pytest.raises(ConfigError, match=said):
            compose_run_config({"overrides": "", key: value})

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from cfl_flower.config import (
    CONF,
    RunConfig,
    compose_config,
    compose_sweep,
    expand,
    own_folder,
    quoted,
    swept_keys,
    unquoted,
)
from cfl_flower.errors import ConfigError
from cfl_flower.settings import build


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return compose_config(["rounds=7", "strategy.local.mu=0.5", "output_dir=here"])


def test_overrides_reach_the_typed_settings(config: RunConfig) -> None:
    assert config.rounds == 7
    assert config.strategy.local.mu == 0.5
    assert config.names["strategy"] == "fielding"
    assert config.overrides == ["rounds=7", "strategy.local.mu=0.5", "output_dir=here"]


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
    ("override", "words"),
    [
        ("rouds=3", ["rouds", "did you mean rounds"]),
        ("strategy.local.epoch=3", ["strategy.local.epoch", "did you mean epochs"]),
        ("strategy=fieldng", ["strategy=fieldng", "fedavg", "fielding"]),
        ("rounds=0", ["rounds=0", "at least 1"]),
        ("rounds=many", ["rounds", "many"]),
        ("seed=-1", ["seed=-1", "at least 0"]),
        ("participants=41", ["participants=41", "40 clients"]),
        ("engine=spark", ["engine=spark", "ray or inprocess"]),
        ("gpus_per_worker=-1", ["gpus_per_worker=-1"]),
        ("partition.groups=11", ["partition.groups=11", "10 labels"]),
        ("drift.rounds=[5,3]", ["drift.rounds", "ascending"]),
        ("strategy.distance=l2", ["strategy.distance=l2", "l1 or js"]),
        ("strategy.weighting=none", ["strategy.weighting=none", "samples or plain"]),
        ("strategy.local.batch_size=0", ["strategy.local.batch_size=0"]),
        ("strategy.scan.smallest=1", ["strategy.scan.smallest=1", "at least 2"]),
        ("strategy.scan.largest=1", ["strategy.scan.largest=1", "at least"]),
        ("strategy.scan.restarts=0", ["strategy.scan.restarts=0", "at least 1"]),
        ("faults.nan=2", ["faults.nan=2", "0 to 1"]),
        ("data_dir=/no/such/folder", ["data_dir=/no/such/folder", "existing folder"]),
        ("output_dir=[", ["output_dir=[", "cannot be read", "in quotes"]),
        ("rounds", ["'rounds' cannot be read", "key=value"]),
    ],
)
def test_bad_input_is_one_line_that_names_key_value_and_remedy(
    override: str, words: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        compose_config([override])
    message = str(caught.value)
    assert "\n" not in message
    assert [word for word in words if word not in message] == []


def test_a_sweep_is_the_product_of_its_values() -> None:
    configs = compose_sweep("strategy=fedavg,local seed=1,2 output_dir=/tmp/sweep")
    found = [(c.names["strategy"], c.seed, Path(c.output_dir).name) for c in configs]
    assert found == [
        ("fedavg", 1, "fedavg-seed1"),
        ("fedavg", 2, "fedavg-seed2"),
        ("local", 1, "local-seed1"),
        ("local", 2, "local-seed2"),
    ]


def test_a_line_without_a_sweep_is_one_run() -> None:
    assert expand(["seed=1", "drift.rounds=[2,3]"]) == [
        ["seed=1", "drift.rounds=[2,3]"]
    ]


@pytest.mark.parametrize(
    ("override", "keys"),
    [
        ("seed=1,2", {"seed"}),
        ("seed=range(0,3)", {"seed"}),
        ("drift.rounds=[2,3]", set()),
        ("output_dir='/tmp/a,b'", set()),
    ],
)
def test_hydras_own_grammar_says_what_is_swept(override: str, keys: set) -> None:
    assert swept_keys([override]) == keys


def test_an_override_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        swept_keys(["rounds"])


def test_runs_of_a_sweep_get_folders_without_odd_characters() -> None:
    job = ["drift.rounds=[2,3]", "output_dir=/tmp/a"]
    assert own_folder(job, {"drift.rounds"})[1] == (
        "output_dir='/tmp/a/drift.rounds_2_3_'"
    )


@pytest.mark.parametrize("path", ["/tmp/a", "/tmp/a b", "/tmp/it's", "/tmp/a\\b,c=1"])
def test_any_path_survives_quoting(path: str) -> None:
    assert unquoted(quoted(path)) == path
    (job,) = expand([f"output_dir={quoted(path)}"])
    assert unquoted(job[0].removeprefix("output_dir=")) == path


def test_every_option_of_every_group_composes() -> None:
    for group in (path for path in CONF.iterdir() if path.is_dir()):
        for option in group.glob("*.yaml"):
            config = compose_config([f"{group.name}={option.stem}"])
            assert config.names[group.name] == option.stem


def test_what_clients_receive_is_plain_json(config: RunConfig) -> None:
    assert json.loads(json.dumps(config.resolved)) == config.resolved


def test_equal_overrides_give_equal_true_concepts(config: RunConfig) -> None:
    again = compose_config(config.overrides)
    assert again.resolved == config.resolved
    for round in (1, 13, 25):
        assert again.concepts(round).tolist() == config.concepts(round).tolist()


def test_a_sweep_without_a_folder_names_none() -> None:
    assert expand(["seed=1,2", "rounds=3"]) == [
        ["seed=1", "rounds=3"],
        ["seed=2", "rounds=3"],
    ]


def test_every_run_of_a_sweep_has_its_own_folder() -> None:
    jobs = expand(
        ["strategy=fedavg,local", "seed=range(0,3)", "rounds=2,4", "output_dir=a"]
    )
    assert len({job[-1] for job in jobs}) == len(jobs) == 12
    assert jobs[0][-1] == "output_dir='a/fedavg-seed0-rounds2'"


def test_a_deleted_key_stays_deleted_in_every_run_of_a_sweep() -> None:
    jobs = expand(["seed=1,2", "~strategy.scan", "output_dir=a"])
    assert [job[1].startswith("~strategy.scan") for job in jobs] == [True, True]


@pytest.mark.parametrize(
    "path", ["/tmp/a b", "/tmp/it's", "/tmp/a,b", "/tmp/[x]", "/tmp/k=v", "null", ""]
)
def test_hydra_reads_a_quoted_path_as_it_was(path: str) -> None:
    (read,) = OverridesParser.create().parse_overrides([f"output_dir={quoted(path)}"])
    assert read.value() == path

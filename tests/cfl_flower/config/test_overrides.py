from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.config.overrides import (
    expand,
    own_folder,
    parse,
    quoted,
    read_run_config,
    split,
    swept_keys,
    with_folder,
)
from cfl_flower.errors import ConfigError


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
def test_swept_keys_follow_hydras_grammar(override: str, keys: set) -> None:
    assert swept_keys([override]) == keys


def test_an_override_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        swept_keys(["rounds"])


def test_runs_of_a_sweep_get_folders_without_odd_characters() -> None:
    job = ["drift.rounds=[2,3]", "output_dir=/tmp/a"]
    assert own_folder(job, {"drift.rounds"})[1] == (
        "output_dir=/tmp/a/drift.rounds_2_3_"
    )


@pytest.mark.parametrize("path", ["/tmp/a", "/tmp/a b", "/tmp/it's", "/tmp/a\\b,c=1"])
def test_any_path_survives_quoting(path: str) -> None:
    (job,) = expand([f"output_dir={quoted(path)}"])
    assert parse(job)[0].value() == path


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
def test_hydra_reads_a_quoted_path_unchanged(path: str) -> None:
    (read,) = OverridesParser.create().parse_overrides([f"output_dir={quoted(path)}"])
    assert read.value() == path


@given(st.text("ab\\'\" ,=[]$", max_size=8) | st.text("/.-_e1", max_size=8))
def test_hydra_reads_any_quoted_text_unchanged(text: str) -> None:
    (read,) = OverridesParser.create().parse_overrides([f"output_dir={quoted(text)}"])
    assert read.value() == text


def test_a_quotation_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="close the quotation"):
        split("seed=1 output_dir='/tmp/a")


@pytest.mark.parametrize("asked", ["seed=1,1", "seed=choice(2,2)"])
def test_a_sweep_with_a_repeated_run_is_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match="seed: the same run occurs twice"):
        expand([asked])


def test_swept_values_with_a_common_folder_are_refused() -> None:
    sweep = ["devices.path='a/b.csv','a_b.csv'", "output_dir=/tmp/a"]
    with pytest.raises(ConfigError, match=r"devices\.path: two values give one folder"):
        expand(sweep)
    assert len(expand(sweep[:1])) == 2
    assert len(expand(["seed=0,1", "output_dir=null"])) == 2


def test_a_glob_is_every_option_of_a_group() -> None:
    assert expand(["drift=glob(swap*)"]) == [["drift=swap_all"], ["drift=swap_part"]]


@pytest.mark.parametrize("folder", ["output_dir=null", "output_dir=''"])
def test_no_output_dir_stays_none_in_a_sweep(folder: str) -> None:
    jobs = expand(["seed=1,2", folder])
    assert [job[1] for job in jobs] == [folder, folder]


def test_a_swept_output_dir_stays_unchanged() -> None:
    assert expand(["output_dir=a,b"]) == [["output_dir=a"], ["output_dir=b"]]
    jobs = expand(["output_dir=a,b", "seed=1,2"])
    assert [job[0] for job in jobs] == [
        f"output_dir='{folder}/seed{seed}'" for folder in "ab" for seed in (1, 2)
    ]


def test_a_forced_output_dir_has_folders_below_it_too() -> None:
    jobs = expand(["++output_dir=a", "seed=1,2"])
    assert [job[0] for job in jobs] == [
        "++output_dir='a/seed1'",
        "++output_dir='a/seed2'",
    ]


def test_only_a_sweep_without_a_folder_gets_one() -> None:
    assert with_folder(["seed=1"]) == ["seed=1"]
    assert with_folder(["seed=1,2", "output_dir=a"]) == ["seed=1,2", "output_dir=a"]
    *asked, folder = with_folder(["seed=1,2"], "compare")
    assert asked == ["seed=1,2"]
    assert folder.endswith("-compare")


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({}, "strategy=a,b\nstrategy=c seed=1"),
        ({"num-clients": ""}, "strategy=a,b\nstrategy=c seed=1"),
        ({"strategy": "d"}, "strategy=d\nstrategy=d seed=1"),
        (
            {"num-clients": 9, "drift": "[sudden, noise]"},
            "clients=9 'drift=[sudden, noise]' strategy=a,b\n"
            "clients=9 'drift=[sudden, noise]' strategy=c seed=1",
        ),
    ],
)
def test_flat_keys_go_to_every_line_of_overrides(
    asked: dict[str, object], lines: str
) -> None:
    overrides = "strategy=a,b\nstrategy=c seed=1"
    assert read_run_config({"overrides": overrides, **asked}) == lines


def test_a_setting_with_a_key_and_in_the_line_is_refused() -> None:
    with pytest.raises(ConfigError, match="num-server-rounds=5 is not allowed beside"):
        read_run_config({"overrides": "rounds=8", "num-server-rounds": 5})

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf

from cfl_flower.config.overrides import (
    apply_override,
    expand,
    own_folder,
    parse,
    quoted,
    split,
    swept_keys,
    with_folder,
)
from cfl_flower.errors import ConfigError

LINE = ["seed=1", "drift.rounds=[2,3]", "output_dir='/tmp/a,b'"]
SWEEPS = [
    (LINE, [LINE]),
    (["seed=1,2", "rounds=3"], [["seed=1", "rounds=3"], ["seed=2", "rounds=3"]]),
    (["seed=range(0,2)"], [["seed=0"], ["seed=1"]]),
    (["drift=glob(swap*)"], [["drift=swap_all"], ["drift=swap_part"]]),
    (["seed=1,2", "~strategy.scan"], [[f"seed={n}", "~strategy.scan"] for n in (1, 2)]),
    # The last one counts.
    (["rounds=3", "seed=1,2", "rounds=4"], [["rounds=4", f"seed={n}"] for n in (1, 2)]),
    # Folders.
    (["output_dir=a,b"], [["output_dir=a"], ["output_dir=b"]]),
    *(
        (["seed=1,2", folder], [["seed=1", folder], ["seed=2", folder]])
        for folder in ("output_dir=null", "output_dir=''")
    ),
    (
        ["output_dir=a,b", "seed=1,2"],
        [[f"output_dir='{f}/seed{n}'", f"seed={n}"] for f in "ab" for n in (1, 2)],
    ),
    (
        ["++output_dir=a", "seed=1,2"],
        [[f"++output_dir='a/seed{n}'", f"seed={n}"] for n in (1, 2)],
    ),
]
"""A line, and the lines of its runs."""


@pytest.mark.parametrize(("line", "jobs"), SWEEPS, ids=str)
def test_a_sweep_is_a_line_for_each_run(line, jobs):
    assert expand(line) == jobs
    assert bool(swept_keys(line)) is (len(jobs) > 1)


@pytest.mark.parametrize(
    "swept",
    [
        "dataset.file=o+k.csv,o_k.csv",
        "dataset.file=a/b,a_b|seed=0,1",
    ],
)
def test_runs_that_would_share_a_folder_are_refused(swept):
    with pytest.raises(ConfigError, match=r"two runs would have output_dir=\S+o?_"):
        expand([*swept.split("|"), "output_dir=/tmp/a"])
    assert len(expand(swept.split("|"))) in (2, 4)


def test_every_run_of_a_sweep_has_its_own_folder():
    jobs = expand(
        ["strategy=fedavg,local", "seed=range(0,3)", "rounds=2,4", "output_dir=a"]
    )
    assert len({job[-1] for job in jobs}) == len(jobs) == 12
    assert jobs[0][-1] == "output_dir='a/fedavg-seed0-rounds2'"
    job = ["drift.rounds=[2,3]", "output_dir=/tmp/a"]
    folder = own_folder(job, {"drift.rounds"})[1]
    assert folder == "output_dir=/tmp/a/drift.rounds_2_3_"


@given(st.text("ab\\'\" ,=[]$", max_size=8) | st.text("/.-_e1nul", max_size=8))
def test_hydra_reads_any_quoted_text_unchanged(text):
    (read,) = OverridesParser.create().parse_overrides([f"output_dir={quoted(text)}"])
    assert read.value() == text


def test_a_line_that_cannot_be_is_refused():
    for twice in ("seed=1,1", "seed=choice(2,2)"):
        with pytest.raises(ConfigError, match="seed: the same run occurs twice"):
            expand([twice])
    with pytest.raises(ConfigError, match="close the quotation"):
        split("seed=1 output_dir='/tmp/a")


def test_only_a_sweep_without_a_folder_gets_one():
    for line in (["seed=1"], ["seed=1,2", "output_dir=a"]):
        assert with_folder(line) == line
    *asked, folder = with_folder(["seed=1,2"], "compare")
    assert asked == ["seed=1,2"]
    assert folder.endswith("-compare")


ROOT = Path(__file__).parents[3]


def test_one_file_uses_private_names():
    folders = [ROOT / name for name in ("cfl_flower", "simulations")]
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    found = [path.name for path in paths if "hydra._internal" in path.read_text()]
    assert found == ["overrides.py"]


@pytest.fixture
def settings() -> DictConfig:
    found = OmegaConf.create({"a": 1, "b": {"c": [2], "d": None}})
    OmegaConf.set_struct(found, True)
    return found


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("a=3", {"a": 3, "b": {"c": [2], "d": None}}),
        ("b.c=[4,5]", {"a": 1, "b": {"c": [4, 5], "d": None}}),
        ("b.d=${a}", {"a": 1, "b": {"c": [2], "d": 1}}),
        ("+b.e=6", {"a": 1, "b": {"c": [2], "d": None, "e": 6}}),
        ("++a=7", {"a": 7, "b": {"c": [2], "d": None}}),
        ("~b.c", {"a": 1, "b": {"d": None}}),
    ],
)
def test_an_override_is_applied(override, expected, settings):
    apply_override(*parse([override]), settings)
    assert OmegaConf.to_container(settings, resolve=True) == expected


@pytest.mark.parametrize(
    ("override", "said"),
    [("e=3", "Could not override 'e'"), ("+a=3", "already at 'a'"), ("~e", "'e' does")],
)
def test_what_cannot_be_applied_is_told(override, said, settings):
    with pytest.raises(ConfigCompositionException, match=said):
        apply_override(*parse([override]), settings)

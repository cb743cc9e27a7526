"""All modules have their turn, and are judged by files that are there."""

from __future__ import annotations

import tomllib
from argparse import ArgumentTypeError

import pytest

from tests.mutate import ROOT, find_modules, judges, of_turn


def test_every_module_has_one_turn() -> None:
    modules = find_modules()
    assert {"cfl_flower/state.py", "clients/base.py", "strategies/ifca.py"} < {*modules}
    turns = [modules[of_turn(f"{each}/7")] for each in range(1, 8)]
    assert sorted(each for some in turns for each in some) == modules


@pytest.mark.parametrize("turn", ["0/3", "4/3", "-1/3"])
def test_other_turns_are_refused(turn: str) -> None:
    with pytest.raises(ArgumentTypeError, match="K from 1 to N"):
        of_turn(turn)


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("strategies/ifca.py", "tests/strategies/test_ifca.py"),
        ("clients/ditto.py", "tests/strategies/test_ditto.py"),
        ("clients/ifca.py", "tests/clients/families/test_choosing.py"),
        ("cfl_flower/state.py", "tests/cfl_flower/engine/test_rounds.py"),
        (
            "cfl_flower/engine/delivery.py",
            "tests/cfl_flower/engine/test_far_reports.py",
        ),
        ("cfl_flower/models/flat.py", "tests/cfl_flower/test_models.py"),
    ],
)
def test_a_module_is_judged_by_the_files_nearest_to_it(module: str, found: str) -> None:
    assert found in judges(module)


def test_what_is_listed_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutants"]
    assert project["modules"].keys() <= {*find_modules()}
    files = {each for more in project["modules"].values() for each in more}
    assert all((ROOT / each).is_file() for each in files)

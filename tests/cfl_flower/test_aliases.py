"""The packages beside `cfl_flower` are the same modules below it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest

from cfl_flower.building import locate
from cfl_flower.environment.plugins import CONF


@pytest.mark.parametrize(
    "name",
    [
        *("strategies", "clients", "conf", "simulations"),
        *("strategies.fedavg", "clients.base", "simulations.reporting.tables"),
    ],
)
def test_an_alias_is_the_same_module(name: str) -> None:
    below = importlib.import_module(f"cfl_flower.{name}")
    assert below is importlib.import_module(name)
    assert below.__name__ == below.__spec__.name == name


def test_a_class_is_one_object_however_it_is_named() -> None:
    path = "strategies.fedavg.FedAvg"
    assert locate(path) is locate(f"cfl_flower.{path}")
    assert Path(str(files("cfl_flower.conf"))) == CONF


def test_what_is_not_beside_is_not_below() -> None:
    assert find_spec("cfl_flower.strategies.nothing") is None
    assert find_spec("cfl_flower.tests") is None


def test_another_package_of_the_name_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "clients.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "simulations.choices"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"cfl-flower error: clients is {tmp_path}/clients.py")
    assert done.stderr.count("\n") == 1

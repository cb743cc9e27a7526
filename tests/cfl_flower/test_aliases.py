"""The packages beside `cfl_flower` are the same modules below it."""

import importlib
import shutil
import subprocess
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest

from cfl_flower.aliases import HOME
from cfl_flower.building import locate
from cfl_flower.environment.plugins import CONF
from tests.conftest import WHOLE, run_command


@pytest.mark.parametrize(
    "name",
    [
        *("strategies", "clients", "conf", "simulations"),
        *("strategies.fedavg", "clients.base", "simulations.reporting.written"),
    ],
)
def test_an_alias_is_the_same_module(name):
    below = importlib.import_module(f"cfl_flower.{name}")
    assert below is importlib.import_module(name)
    assert below.__name__ == below.__spec__.name == name


def test_a_class_is_one_object_however_it_is_named():
    path = "strategies.fedavg.FedAvg"
    assert locate(path) is locate(f"cfl_flower.{path}")
    assert Path(str(files("cfl_flower.conf"))) == CONF


def test_what_is_not_beside_is_not_below():
    assert find_spec("cfl_flower.strategies.nothing") is None
    assert find_spec("cfl_flower.tests") is None


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return run_command(command, cwd=folder)


@pytest.mark.parametrize("name", ["strategies", "clients", "simulations"])
@pytest.mark.parametrize("package", [True, pytest.param(False, marks=WHOLE)])
def test_modules_in_a_folder_of_that_name_are_found_beside_ours(
    name, package, tmp_path
):
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine.py").write_text("VALUE = 3")
    if package:
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "conf").mkdir()
    code = f"import cfl_flower, {name}.mine, clients.base; print({name}.mine.VALUE)"
    done = python(tmp_path, "-c", code)
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.parametrize("name", ["strategies", "clients", "simulations"])
def test_where_ours_is_not_bundled_the_other_one_is_found(name, tmp_path):
    # As on a device, where Flower puts an app's folder first.
    shutil.copytree(HOME / "cfl_flower", tmp_path / "app" / "cfl_flower")
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("VALUE = 3")
    first = f"import sys; sys.path.insert(0, {str(tmp_path / 'app')!r})"
    code = f"{first}; import cfl_flower, {name}; print({name}.VALUE)"
    done = python(tmp_path, "-c", code)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_a_module_of_that_name_does_not_hide_ours(tmp_path):
    (tmp_path / "clients.py").touch()
    done = python(tmp_path, "-m", "simulations.choices")
    assert done.returncode == 0, done.stderr


def test_what_was_imported_before_is_one_line(tmp_path):
    (tmp_path / "clients.py").touch()
    code = "import clients, cfl_flower; cfl_flower.run"
    done = python(tmp_path, "-c", code)
    said = f"clients is {tmp_path}/clients.py here, and not cfl-flower's package of"
    assert f"ConfigError: {said}" in done.stderr.splitlines()[-1]

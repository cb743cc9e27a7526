"""Parts from outside: who allows them, and where they are found."""

import io
import os
import shutil
import sys
from pathlib import Path

import pytest
from flwr.app import Message
from rich.console import Console

from cfl_flower.building import build, locate
from cfl_flower.config.compose import compose_config
from cfl_flower.config.options import list_options
from cfl_flower.environment import plugins
from cfl_flower.errors import ConfigError, NoValidResultError
from cfl_flower.server_app import execute
from simulations.choices import list_choices
from simulations.engines.inprocess import InProcessGrid

OWN = """
import math
from clients.base import ClusteredClient as Spy
from torch import nn
from cfl_flower.settings import settings

@settings("model")
class Tiny:
    def build(self, shape, classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user, who stands in it, with a network of their own."""
    (tmp_path / "ownmodel.py").write_text(OWN)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "tiny.yaml").write_text(
        "# A linear layer.\n_target_: ownmodel.Tiny\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ownmodel", raising=False)
    return tmp_path


def test_ones_own_command_allows_what_it_names(own):
    assert "tiny" in list_options("model")
    config = compose_config(["model=tiny"])
    assert type(config.model).__name__ == "Tiny"
    assert compose_config(["model._target_=ownmodel.Tiny"]).model
    assert build(config.resolved["model"]) == config.model


def test_a_message_or_a_file_allows_nothing(own):
    node = {"name": "tiny", "_target_": "ownmodel.Tiny"}
    with pytest.raises(
        ConfigError, match=r"ownmodel.Tiny.* not allowed; set CFL_PLUGINS=ownmodel "
    ):
        build(node)


def test_a_device_allows_by_its_environment(own, monkeypatch):
    monkeypatch.setenv(plugins.ALLOWED, "other, ownmodel.networks")
    assert locate("ownmodel.Tiny").__name__ == "Tiny"
    monkeypatch.setenv(plugins.ALLOWED, "missing_package")
    with pytest.raises(ConfigError, match=r"cannot be imported .*missing_package"):
        locate("missing_package.Tiny")


@pytest.mark.parametrize(
    "named", ["model._target_=ownmodel.Tiny", "strategy.client=ownmodel.Spy"]
)
def test_a_device_refuses_what_its_owner_did_not_allow(named, own, monkeypatch, caplog):
    devices = ["strategy=fedavg", "clients=2", "participants=2", "drift=none"]
    config = compose_config([*devices, f"output_dir={own / 'run'}", named])
    # The devices are in this process: as in theirs, nothing was imported or allowed.
    monkeypatch.delitem(sys.modules, "ownmodel")

    class Elsewhere(InProcessGrid):
        def answer(self, message: Message) -> Message:
            with monkeypatch.context() as device:
                device.setattr(plugins, "_named", set())
                return super().answer(message)

    grid = Elsewhere([{"client-id": 0}, {"client-id": 1}])
    with pytest.raises(NoValidResultError) as caught:
        execute(grid, config, Console(file=io.StringIO()))
    assert "ownmodel" not in sys.modules
    said = str(caught.value)
    assert "none of 2 clients" in said
    assert "is not allowed; set CFL_PLUGINS=ownmodel where this runs" in caplog.text
    assert "ConfigError; its text is in the device's own log" in said
    assert "\n" not in said


def test_other_processes_find_the_same_parts(own, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv(plugins.ALLOWED, raising=False)
    assert plugins.environment() == {plugins.CONFIGURATION: str(own / "conf")}
    compose_config(["model=tiny"])
    assert plugins.environment() == {
        plugins.CONFIGURATION: str(own / "conf"),
        plugins.ALLOWED: "ownmodel",
        "PYTHONPATH": str(own),
    }
    monkeypatch.setenv("PYTHONPATH", f"/a{os.pathsep}{own}")
    assert plugins.environment()["PYTHONPATH"] == f"/a{os.pathsep}{own}"


def test_a_file_that_is_no_yaml_is_one_line(own):
    (own / "conf" / "model" / "torn.yaml").write_text("_target_: [\n")
    with pytest.raises(ConfigError, match=r"is no yaml: .*torn\.yaml") as caught:
        compose_config(["model=torn"])
    assert "\n" not in str(caught.value)


def test_a_file_with_the_name_of_an_option_is_refused_where_it_is_chosen(own):
    (own / "conf" / "model" / "mlp.yaml").write_text("_target_: ownmodel.Tiny\n")
    with pytest.raises(ConfigError, match=r"model=mlp .*/conf/model/mlp\.yaml; give"):
        compose_config(["model=mlp"])
    assert compose_config(["model=tiny"]).names["model"] == "tiny"


def test_the_conf_of_another_copy_of_this_project_is_not_the_users(
    tmp_path, monkeypatch
):
    for package in ("cfl_flower", "conf"):
        shutil.copytree(plugins.CONF.parent / package, tmp_path / package)
    monkeypatch.chdir(tmp_path)
    assert compose_config(["strategy=fedavg"]).names["strategy"] == "fedavg"
    assert plugins.environment() == {}


def test_the_conf_of_another_program_with_hydra_is_not_in_the_way(
    tmp_path, monkeypatch
):
    for name in ("model/mlp", "model/large", "optimizer/adam"):
        path = tmp_path / "conf" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("width: 3\n")
    monkeypatch.chdir(tmp_path)
    assert compose_config(["model=mlp"]).resolved["model"]["hidden"]
    assert "large" not in list_options("model")
    with pytest.raises(ConfigError, match="large is neither a group nor an option"):
        list_choices("large")
    _, rows = list_choices("")
    assert "optimizer" not in [group for group, _ in rows]


def test_a_folder_that_is_named_must_be_there(own, monkeypatch):
    monkeypatch.setenv(plugins.CONFIGURATION, str(own / "nowhere"))
    with pytest.raises(ConfigError, match=r"CFL_CONF=.*nowhere is no folder"):
        compose_config(["model=tiny"])

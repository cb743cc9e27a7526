"""Whatever a message says: a device calls no host, and writes to its own folders."""

import importlib
import json
import logging
import os
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import isabstract, isfunction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset
from flwr.app import Message
from PIL import Image

import cfl_flower
import clients
import strategies
from cfl_flower import models
from cfl_flower.building import settings_class
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.records import unpack_answers
from cfl_flower.communication.task_records import pack_tasks
from cfl_flower.config.compose import compose_config
from cfl_flower.data import datasets
from cfl_flower.data.datasets.tables import Csv
from cfl_flower.errors import ConfigError
from cfl_flower.types import Json, Plan, Task
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import WHOLE as OF_WHOLE

TOKEN = "0" * 32
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink")
CALLS = ("socket.connect", "socket.getaddrinfo", "socket.sendto")
STARTS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen")

OTHERS = ("/etc/passwd", "other.npz")
"""Files that a device with samples of its own must not read either."""

_seen: list[tuple[str, str]] | None = None
"""What is done while somebody looks: Python forgets no hook."""


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    if event in CALLS:
        _seen.append((event, str(arguments)))
        raise OSError("no network in this test")
    if event in STARTS:
        _seen.append((event, str(arguments)))
    elif event == "open" and isinstance(arguments[0], str | bytes):
        path = os.fsdecode(arguments[0])
        if arguments[2] & WRITES:
            _seen.append((event, path))
        elif path.endswith(OTHERS):
            _seen.append(("read", path))
    elif event in CHANGES:
        paths = [each for each in arguments if isinstance(each, str | bytes)]
        _seen.extend((event, os.fsdecode(each)) for each in paths)


sys.addaudithook(_note)


@contextmanager
def watched() -> Iterator[list[tuple[str, str]]]:
    global _seen  # noqa: PLW0603
    before = _seen
    _seen = []
    try:
        yield _seen
    finally:
        _seen = before


def modules(*packages: Any) -> list[Any]:
    """Return all modules of packages."""
    names = [
        each.name
        for package in packages
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return [*packages, *map(importlib.import_module, names)]


def kinds(package: Any) -> list[Any]:
    """Return all settings that are declared in a package."""
    found = [
        each
        for module in modules(package)
        for each in vars(module).values()
        if hasattr(each, "__pydantic_fields__") and not isabstract(each)
        if each.__module__ == module.__name__
    ]
    return sorted(found, key=lambda each: each.__qualname__)


DATASETS = [each for each in kinds(datasets) if hasattr(each, "load")]
NETWORKS = [each for each in kinds(models) if hasattr(each, "build")]

HYBRID = "cfl_flower.data.datasets.hybrid.Hybrid"
NAMES = (
    *("org/name", "json", "elsewhere", ".", "images", "../other.npz", "/etc/passwd"),
    "https://localhost/x",
)
"""What a setting may be told: a name on a hub, a package, a folder, a file, a host."""

WHOLE: dict[str, Json] = {
    "label": "label",
    "features": [],
    "shape": [1],
    "classes": 2,
    "path": "table",
}
"""Settings with which a device's table is read whole."""


def hostile(kind: Any) -> Iterator[dict[str, Json]]:
    """Yield settings of a class with one of its fields, or none, turned against us."""
    target = f"{kind.__module__}.{kind.__qualname__}"
    fields = kind.__pydantic_fields__
    base: dict[str, Json] = {"_target_": target}
    base |= {name: value for name, value in WHOLE.items() if name in fields}
    yield base
    for name, field in fields.items():
        annotation = str(field.annotation)
        if field.annotation is bool:
            yield {**base, name: not field.default}
        elif "str" in annotation and "tuple" not in annotation:
            yield from ({**base, name: value} for value in NAMES)
        elif "str" in annotation:
            yield {**base, name: [NAMES[0], NAMES[3]]}


class Device:
    """A device with a folder of samples, or one for a trial, which has none."""

    def __init__(self, root: Path, trial: bool) -> None:
        self.trial = trial
        self.data = root / "data"
        self.own = [root / "state", root / "cache"]
        (root / "elsewhere").mkdir()
        (root / "other.npz").touch()
        node: dict[str, Any] = {"client-id": 0, "state-dir": str(root / "state")}
        if not trial:
            node["data-dir"] = str(self.data)
        self._grid = InProcessGrid([node])
        asked = ["dataset=digits", "clients=3", "participants=3", "drift=none"]
        config = compose_config([*asked, "strategy=fedavg", f"data_dir={self.data}"])
        says = {"run": TOKEN, "output_dir": str(root / "elsewhere"), "rounds": 2}
        self._settings = {**config.resolved, **says}

    def asked(self, **settings: Json) -> tuple[list[tuple[str, str]], str]:
        """Return what a device does that it may not, and what it says."""
        tasks = [Task(0)]
        pending = PendingMessage("query", 1, Plan(tasks), tasks, 1000)
        content = pack_tasks(pending, json.dumps({**self._settings, **settings}), {})
        with watched() as seen:
            reply = self._grid.answer(Message(content, 1000, "query"))
        said = reply.error.reason if reply.has_error() else ""
        if not said:
            (answer,) = unpack_answers(reply.content)
            said = str(answer.error or "")
        done = [each for each in seen if not self._may(each[1])]
        return [each for each in done if not self.trial or each[0] != "read"], said

    def _may(self, what: str) -> bool:
        """Return whether something is a file in the device's own folders."""
        path = Path(what).absolute()
        compiled = path.parent.name == "__pycache__" or path.name == "null"
        return compiled or any(path.is_relative_to(each) for each in self.own)


@pytest.fixture(
    params=[False, pytest.param(True, marks=OF_WHOLE)], ids=["own", "trial"]
)
def device(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Device:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    data = tmp_path / "data"
    data.mkdir()
    rows = {"label": [0, 1] * 20, "number": [*range(40)]}
    pd.DataFrame(rows).to_csv(data / "data.csv", index=False)
    Dataset.from_dict(rows).save_to_disk(str(data / "table"))
    np.savez(data / "data.npz", x=np.zeros((40, 6), np.float32), y=[0, 1] * 20)
    for name in "01":
        (data / "images" / name).mkdir(parents=True)
        for number in range(5):
            path = data / "images" / name / f"{number}.png"
            Image.new("RGB", (8, 8)).save(path)
    return Device(tmp_path, request.param)


@pytest.mark.parametrize("kind", DATASETS, ids=lambda kind: kind.__qualname__)
def test_no_setting_of_a_dataset_leads_out_of_a_device(kind, device):
    for dataset in hostile(kind):
        done, said = device.asked(dataset=dataset)
        assert done == [], (dataset, said)
        done, _ = device.asked(dataset={"_target_": HYBRID, "parts": {"a": dataset}})
        assert done == [], dataset


@pytest.mark.parametrize("kind", NETWORKS, ids=lambda kind: kind.__qualname__)
def test_no_setting_of_a_network_leads_out_of_a_device(kind, device):
    texts = next(hostile(Csv))
    for network in hostile(kind):
        adapted = {"_target_": "cfl_flower.models.Adapted", "network": network}
        for model in (network, adapted):
            for more in ({}, {"dataset": texts}):
                done, said = device.asked(model=model, **more)
                assert done == [], (model, said)


def test_a_device_for_a_trial_remembers_in_its_own_folder(run_small, tmp_path):
    nodes = [
        {"client-id": client, "state-dir": str(tmp_path / "state")}
        for client in range(12)
    ]
    run = run_small("strategy=ditto", grid=InProcessGrid(nodes))
    assert not run.failures
    assert not (run.folder / "clients").exists()
    (remembered,) = (tmp_path / "state").iterdir()
    assert len(list(remembered.glob("[0-9]*/*.safetensors"))) >= 12


def test_no_function_of_this_project_is_called_as_a_network():
    functions = [
        f"{module.__name__}.{name}"
        for module in modules(cfl_flower, strategies, clients)
        for name, each in vars(module).items()
        if isfunction(each)
    ]
    assert "cfl_flower.building.import_module" in functions
    for path in functions:
        with pytest.raises(ConfigError, match="has no settings"):
            settings_class(path)

"""Devices with folders of their own, in process: what they hold is what is there."""

import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from cfl_flower.building import with_defaults
from cfl_flower.client import node_config as node_config_module
from cfl_flower.client.node_config import (
    FOLDER,
    FREE,
    LEAST_MEMBERS,
    PREDICTIONS,
    SECURE_SUMS,
    NodeConfig,
)
from cfl_flower.errors import ConfigError
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import Run, run_command

SITES = ["dataset=folder", "dataset.shape=[1,8,8]", "drift=none"]
SITES += ["clients=3", "participants=3"]
LOW, HIGH = range(5), range(5, 10)


def add_samples(folder: Path, name: str, labels: Any, most: int = 80) -> None:
    """Put digits with some labels into a device's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    rows = np.flatnonzero(np.isin(digits.target, list(labels)))[:most]
    x = (digits.images[rows] * 255 / 16).astype(np.uint8)[:, None]
    np.savez(folder / f"{name}.npz", x=x, y=digits.target[rows])


def node_config(root: Path, name: str) -> dict[str, Any]:
    return {
        "client-id": name,
        "data-dir": str(root / name),
        "state-dir": str(root / "state" / name),
    }


class Sites(InProcessGrid):
    """Three devices with folders; something may happen before a round's training."""

    def __init__(self, root: Path) -> None:
        for name, labels in (("a", LOW), ("b", LOW), ("c", HIGH)):
            add_samples(root / f"site-{name}", "first", labels)
        super().__init__([node_config(root, f"site-{name}") for name in "abc"])
        self.events: dict[int, Any] = {}

    def push_messages(self, messages: Any) -> list[str]:
        listed = list(messages)
        meta = listed[0].metadata
        if meta.message_type == "train":
            self.events.pop(int(meta.group_id), lambda: None)()
        return super().push_messages(listed)


def clusters(run: Run, round: int) -> dict[str, int]:
    rows = [row for row in run.clients if row["round"] == round]
    return {row["client"]: row["cluster"] for row in rows}


def test_new_files_are_new_samples_and_move_a_device(run_small, tmp_path):
    grid = Sites(tmp_path)

    def drift() -> None:
        (tmp_path / "site-a" / "first.npz").unlink()
        add_samples(tmp_path / "site-a", "second", HIGH, most=120)

    grid.events[2] = drift
    run = run_small(*SITES, "strategy=fielding", grid=grid)
    assert [row["drifted"] for row in run.rounds] == [0, 1, 0, 0]
    before, after = clusters(run, 1), clusters(run, 4)
    assert before["site-a"] == before["site-b"] != before["site-c"]
    assert after["site-a"] == after["site-c"] != after["site-b"]
    counts = [r["num_examples"] for r in run.clients if r["client"] == "site-a"]
    assert counts[0] < counts[1], "the test of round 2 is on what is there now"
    assert all(row["failures"] == [] for row in run.rounds)


@pytest.mark.parametrize("name", ["fedavg", "fedrep", "fedem", "fedavg_ls"])
def test_predictions_are_kept_on_the_device_that_asks_and_nowhere_else(
    name, run_small, tmp_path
):
    asked = [*SITES, f"strategy={name}", "model=mlp", "metrics=[macro_f1]"]
    numbers = []
    for folder, more in (("no", {}), ("yes", {PREDICTIONS: str(tmp_path)})):
        grid = Sites(tmp_path / folder)
        nodes = {
            node: {**config, **more} if config["client-id"] == "site-a" else config
            for node, config in grid.node_configs.items()
        }
        grid.node_configs.update(nodes)
        numbers.append(run_small(*asked, grid=grid, folder=f"run {folder}").numbers)
    assert numbers[0] == numbers[1]
    assert [path.name for path in tmp_path.glob("*.csv")] == ["site-a.csv"]
    path = tmp_path / "site-a.csv"
    assert path.stat().st_mode & 0o777 == 0o600
    table = np.genfromtxt(path, delimiter=",", names=True)
    (row,) = [r for r in numbers[1] if r.get("client") == "site-a" and r["round"] == 4]
    assert (table["round"] == 4).all()
    assert table["case"].tolist() == list(range(1, row["num_examples"] + 1))
    assert (table["label"] == table["prediction"]).mean() == row["accuracy"]
    shares = np.stack([table[str(label)] for label in range(10)], axis=1)
    assert shares.sum(axis=1) == pytest.approx(1)
    assert (shares.argmax(axis=1) == table["prediction"]).all()


def test_state_of_an_old_run_is_removed_when_another_begins(tmp_path):
    (tmp_path / "not-ours").mkdir()
    site = NodeConfig.of({"client-id": 3, "state-dir": str(tmp_path)})
    old, recent, new = "0" * 32, "1" * 32, "2" * 32
    for name in (old, recent):
        (site.remembered(name) / "3").mkdir()
    for name, days in ((old, 91), (recent, 89), ("not-ours", 99)):
        then = time.time() - days * 86400
        for path in (tmp_path / name, *(tmp_path / name).glob(".*")):
            os.utime(path, (then, then))
    site.remembered(recent)
    assert (tmp_path / old).exists(), "a known run looks after nothing"
    assert site.remembered(new) == tmp_path / new
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {recent, new, "not-ours"}
    assert (tmp_path / recent / "3").exists()


def test_a_device_without_samples_costs_its_own_results_only(
    run_small, tmp_path, caplog
):
    grid = Sites(tmp_path)
    (tmp_path / "site-b" / "first.npz").unlink()
    grid.events[2] = lambda: add_samples(tmp_path / "site-b", "first", LOW)
    run = run_small(*SITES, "strategy=fedavg", grid=grid)
    (failure,) = run.rounds[0]["failures"]
    assert (failure["client"], failure["phase"]) == ("site-b", "query")
    assert failure["detail"].endswith(
        "ConfigError; its text is in the device's own log"
    )
    assert "has no samples; put .npz files" in caplog.text
    assert set(clusters(run, 2)) == {"site-a", "site-c"}
    assert set(clusters(run, 3)) == {"site-a", "site-b", "site-c"}


@pytest.mark.parametrize("attack", ["noise", "flip"])
def test_no_message_makes_an_attacker_of_a_device_with_its_own_data(
    attack, run_small, tmp_path
):
    def losses(*faults: str) -> list[float]:
        grid = Sites(tmp_path / str(len(faults)))
        for place, config in enumerate(grid.node_configs.values()):
            config["client-id"] = place
        options = [*SITES, "strategy=fedavg", *faults]
        run = run_small(*options, grid=grid, folder=f"run-{len(faults)}")
        return [row["loss"] for row in run.rounds]

    named = ["faults.attackers=[0,1,2]", "faults.malicious=1"]
    assert losses(*named, f"faults.attack={attack}") == losses()


def test_a_device_restarted_as_another_client_is_queried_again(run_small, tmp_path):
    grid = Sites(tmp_path)
    grid.events[2] = lambda: grid.node_configs[1000].update({"client-id": "site-d"})
    run = run_small(*SITES, "strategy=fedavg", grid=grid)
    failures = run.rounds[1]["failures"]
    assert [f["reason"] for f in failures if f["phase"] == "train"] == ["identity"]
    assert set(clusters(run, 1)) == {"site-a", "site-b", "site-c"}
    assert set(clusters(run, 3)) == {"site-b", "site-c", "site-d"}


@pytest.mark.parametrize(
    ("node", "complaint"),
    [
        ({"client-id": "../a", "data-dir": "."}, "client-id=../a"),
        ({"client-id": True}, "client-id=True"),
        ({"client-id": "site-a"}, "data-dir="),
        ({"client-id": "site-a", "data-dir": "/nowhere"}, "data-dir=/nowhere"),
        ({"client-id": 3, PREDICTIONS: "/nowhere"}, f"{PREDICTIONS}=/nowhere"),
        ({"client-id": 3, PREDICTIONS: "~/no"}, f"{PREDICTIONS}={Path.home()}/no"),
        ({"client-id": 0, SECURE_SUMS: "yes"}, f"{SECURE_SUMS}=yes"),
        ({"client-id": 0, LEAST_MEMBERS: 1}, f"{LEAST_MEMBERS}=1"),
        ({"client-id": 0, LEAST_MEMBERS: True}, f"{LEAST_MEMBERS}=True"),
    ],
)
def test_an_invalid_node_config_is_named(node, complaint):
    with pytest.raises(ConfigError, match=complaint):
        NodeConfig.of(node)


def test_a_device_hears_of_so_many_runs_in_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(node_config_module, "RUNS_A_DAY", 3)
    site = NodeConfig.of({"client-id": 3, "state-dir": str(tmp_path)})
    first, *others = [f"{run:032x}" for run in range(3)]
    for run in (first, *others):
        site.remembered(run)
    with pytest.raises(ConfigError, match=r"run=f+ .* heard of 3 within a day"):
        site.remembered("f" * 32)
    assert len(list(tmp_path.iterdir())) == 3
    site.remembered(first)
    then = time.time() - 86401
    os.utime(tmp_path / first / ".last-heard-of", (then, then))
    site.remembered("f" * 32)


CSV = "cfl_flower.data.datasets.tables.Csv"
LOCAL = "cfl_flower.privacy.settings.LocalPrivacy"
NOISE = "strategies.fielding.report_noise.ClientNoise"
SENT: dict[str, dict[str, Any]] = {
    "dataset": with_defaults({"_target_": FOLDER, "shape": [6]}),
    "model": with_defaults({"_target_": "cfl_flower.models.Mlp", "hidden": 64}),
    "privacy": with_defaults({"_target_": LOCAL, "secure_sums": True}),
    "strategy": {"fine_tuning": 0, "privacy": with_defaults({"_target_": NOISE})},
}
TABLE = with_defaults({"_target_": CSV, "file": "a.csv", "label": "kind"})
NAMED = {**SENT["dataset"], "classes": 2, "names": ["hiv", "well"]}


def owned(folder: Path, word: Any, **more: Any) -> Any:
    """Return a device whose owner has said something about settings."""
    path = folder / "own.json"
    path.write_text(word if isinstance(word, str) else json.dumps(word))
    return NodeConfig.of({"client-id": 1, "settings": str(path), **more})


@pytest.mark.parametrize(
    ("word", "changed", "named"),
    [
        ({}, {}, ""),
        (SENT, {}, ""),
        ({"model": {"trainable": []}}, {}, ""),
        ({"dataset": {"classes": 3}}, {}, "dataset.classes=10"),
        (SENT, {"model": {**SENT["model"], "hidden": 1}}, "model.hidden=1"),
        (SENT, {"model": "mlp"}, "model._target_=None"),
        (SENT, {"privacy": {**SENT["privacy"], "secure_sums": False}}, "sums=False"),
        ({}, {"dataset": {"_target_": CSV}}, "dataset._target_"),
        ({"model": SENT["model"]}, {"dataset": {"_target_": CSV}}, "dataset._target_"),
        ({"dataset": {"label": "kind"}}, {"dataset": TABLE}, "dataset._target_"),
        ({"dataset": TABLE}, {"dataset": TABLE}, ""),
        ({"dataset": TABLE}, {"dataset": {**TABLE, "label": "age"}}, "dataset.label"),
        ({}, {"dataset": NAMED}, "dataset.names"),
        ({"dataset": {"names": NAMED["names"]}}, {"dataset": NAMED}, ""),
        ({"dataset": NAMED}, {"dataset": NAMED}, ""),
    ],
)
def test_a_run_has_the_settings_that_its_owner_says(word, changed, named, tmp_path):
    own = {"client-id": "a", "data-dir": str(tmp_path)}
    strict = owned(tmp_path, word, **own, **{SECURE_SUMS: True})
    with pytest.raises(ConfigError, match=named) if named else nullcontext():
        strict.require_settings({**SENT, **changed})
    if word == {}:
        # What labels are, and are called, is the owner's word where only they leave.
        owned(tmp_path, word, **own).require_settings({**SENT, **changed})


@pytest.mark.parametrize("group", ["dataset", "model", "privacy"])
def test_of_a_class_that_the_owner_names_no_run_has_other_settings(group, tmp_path):
    own = {"dataset": {"shape": [6]}, "model": {"hidden": 64}, "privacy": {}}[group]
    device = owned(tmp_path, {group: {"_target_": SENT[group]["_target_"], **own}})
    for name in SENT[group]:
        other = {**SENT, group: SENT[group] | {name: "another"}}
        if group == "privacy" and name in FREE:
            device.require_settings(other)
            continue
        with pytest.raises(ConfigError, match=f"{group}.{name}.*=.* is not allowed"):
            device.require_settings(other)


@pytest.mark.parametrize(
    ("said", "asked", "allowed"),
    [(1.0, 1.0, True), (0.5, 0.7, True), (0.5, 0.4, False), (None, 0.9, False)],
)
def test_a_histogram_has_the_noise_of_the_owner_at_least(
    said, asked, allowed, tmp_path
):
    own = {} if said is None else {"report_noise": said}
    device = owned(tmp_path, {"privacy": {"_target_": LOCAL, **own}})
    noise = {"privacy": {"_target_": NOISE, "noise_multiplier": asked}}
    sent = {**SENT, "privacy": SENT["privacy"] | own, "strategy": noise}
    less = pytest.raises(ConfigError, match=f"noise_multiplier={asked}")
    with nullcontext() if allowed else less:
        device.require_settings(sent)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(
            (text, r"settings=.*own.json .* use a JSON file")
            for text in ("", "[]", "7", "{", '{"model": ', '{"privacy": 7}')
        ),
        ('{"privacy": {"clip": 1.0}}', "whose privacy names its class"),
        (json.dumps({"privacy": {"_target_": LOCAL, "klip": 1}}), "privacy.klip is"),
        ('{"privacy": {"secure_sums": true}}', ""),
    ],
)
def test_a_file_of_settings_that_says_too_little_is_refused_at_once(
    text, words, tmp_path
):
    path = tmp_path / "own.json"
    with pytest.raises(ConfigError, match=f"settings={path} "):
        NodeConfig.of({"client-id": 1, "settings": str(path)})
    with pytest.raises(ConfigError, match=words) if words else nullcontext():
        owned(tmp_path, text)


def test_a_device_takes_part_in_no_run_with_other_settings(run_small, tmp_path):
    grid = Sites(tmp_path)
    (tmp_path / "own.json").write_text('{"dataset": {"classes": 11}}')
    grid.node_configs[1000]["settings"] = str(tmp_path / "own.json")
    run = run_small(*SITES, "strategy=fedavg", "rounds=1", grid=grid)
    told = {f["client"]: f["detail"] for f in run.rounds[0]["failures"]}
    log = "DeviceFailedError: ConfigError; its text is in the device's own log"
    assert told == {"site-a": log}


def test_the_client_side_needs_neither_ray_nor_hydra():
    """All that a SuperNode imports, every method's client included, without them.

    It starts a process for each message: what one method needs is imported first, and
    an import of the server's would be paid every time.
    """
    code = """
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"ray", "hydra", "omegaconf", "jinja2",
                                      "matplotlib"}:
            raise ModuleNotFoundError(f"{name} is not on a device")

sys.meta_path.insert(0, Blocked())
import cfl_flower.client_app, clients.fielding, clients.fedccfa, strategies
print(*sorted({"scipy.stats", "sklearn"} & set(sys.modules)))
for package in (clients, strategies, importlib.import_module("cfl_flower.data")):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""
    done = run_command([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "run", ["", "..", "../run", "/tmp/run", "é" * 50, "a/b", "run", "A" * 32, "0" * 33]
)
def test_a_run_that_is_no_token_is_refused(run, tmp_path):
    site = NodeConfig.of({"client-id": 3, "state-dir": str(tmp_path / "state")})
    with pytest.raises(ConfigError, match=r"run=.* is not allowed"):
        site.remembered(run)
    assert list(tmp_path.iterdir()) == []

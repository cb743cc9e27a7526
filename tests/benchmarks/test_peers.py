"""The other libraries' benchmark, without the other libraries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from cfl_flower.errors import ConfigError
from simulations.engines.inprocess import InProcessGrid
from tests.benchmarks.peers import table
from tests.benchmarks.peers.scripts import job as scripts

SMALL = (
    f"{table.COMMON} clients=12 participants=3 partition.samples=20 partition=iid "
    "strategy.local.learning_rate=0.5 rounds=6 strategy=fedavg model=mclr"
)


def test_our_side_does_a_small_work_and_learns() -> None:
    prepared = table.Prepared(SMALL)
    ours = table.all_peers()["cfl-flower"]
    figures = table.measure(prepared, SMALL, ours)
    assert len(figures) == len(table.COLUMNS)
    assert min(figures[1:]) > 0  # CPU time comes in hundredths of seconds
    assert figures[-1] > prepared.accuracy(prepared.start) + 0.2


def test_works_are_of_sixty_steps() -> None:
    for overrides in table.WORKS.values():
        config = table.Prepared(f"{overrides} clients=20").config
        assert config.strategy.local.count_steps(40) == 60
        assert config.rounds > table.WARM_UP + 2


def test_flowers_client_trains_the_model_that_it_gets(tmp_path: Path) -> None:
    from tests.benchmarks.peers.scripts.with_flower import client_app

    prepared = table.Prepared(SMALL)
    job = prepared.job(tmp_path, SMALL)
    network = scripts.set_parameters(scripts.build(job.shapes), prepared.start[0])
    arrays = ArrayRecord(network.state_dict())
    config = ConfigRecord({"job": json.dumps(vars(job))})
    content = RecordDict({"arrays": arrays, "config": config})
    grid = InProcessGrid([{"partition-id": 7}], client_app)
    message = Message(content, grid.get_node_ids()[0], "train")
    (reply,) = grid.send_and_receive([message])
    assert reply.content.metric_records["metrics"]["num-examples"] == 20
    network.load_state_dict(reply.content.array_records["arrays"].to_torch_state_dict())
    assert not np.allclose(scripts.get_parameters(network), prepared.start[0])


@pytest.mark.parametrize("work", table.WORKS)
def test_the_others_networks_are_ours(work: str, tmp_path: Path) -> None:
    overrides = f"{table.WORKS[work]} clients=20"
    prepared = table.Prepared(overrides)
    job = prepared.job(tmp_path, overrides)
    network = scripts.set_parameters(scripts.build(job.shapes), prepared.start[0])
    ours = prepared.model.load(prepared.start[0]).module
    x = torch.rand(3, 1, 28, 28)
    assert torch.allclose(network(x), ours(x), atol=1e-5)


def test_a_client_is_tested_with_the_model_that_fits_its_samples() -> None:
    prepared = table.Prepared(SMALL)
    # Each tells all samples of one label right, and its client all others wrong.
    models = [np.zeros_like(prepared.start[0]) for _ in range(2)]
    for label, model in enumerate(models):
        model[-10 + label] = 5.0  # the biases are last
    for labels in (prepared.y, prepared.y_test):
        labels[:6] = 0
        labels[6:] = 1
    assert prepared.accuracy(models) == 1.0
    assert prepared.accuracy(models[:1]) == 0.5


def test_a_library_that_does_not_run_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import no_such_library"]
    with pytest.raises(subprocess.CalledProcessError) as error:
        table.watch(command, str(tmp_path), 1)
    assert b"ModuleNotFoundError" in error.value.stderr


def test_a_machine_with_other_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PATIENCE", 0)
    monkeypatch.setattr(table.os, "getloadavg", lambda: (1.5, 0.0, 0.0))
    monkeypatch.setattr(table.os, "sched_getaffinity", lambda _: {0, 1})
    assert table.wait_for_rest(any_load=True) == 1.5
    with pytest.raises(ConfigError, match=r"1\.50, .* 0\.3; .*--any-load"):
        table.wait_for_rest(any_load=False)


def test_a_cell_has_the_range_of_its_values() -> None:
    assert table.spread([3.0, 1.0, 2.0], ".1f") == "2.0 (1.0-3.0)"
    assert table.spread([2.0, 2.0], ".1f") == "2.0"

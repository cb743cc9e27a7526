"""The benchmark finds its parts, and measures what it says."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from shlex import split

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from cfl_flower.config.compose import compose_config
from simulations.engines.inprocess import InProcessGrid
from tests.benchmarks.__main__ import PARTS
from tests.benchmarks.measure import compare, measure, within
from tests.benchmarks.peers import table
from tests.benchmarks.peers.scripts import job as scripts


@pytest.mark.parametrize("part", PARTS)
def test_every_run_of_the_benchmark_composes(part: str) -> None:
    module = import_module(f"tests.benchmarks.{part}")
    for name, line in vars(module).items():
        if name.isupper() and "strategy=" in str(line):
            config = compose_config(split(line))
            assert config.participants <= config.clients


def test_steps_take_turns_and_are_measured_as_often_as_asked() -> None:
    done: list[str] = []
    laps = measure(lambda: done.append("ours"), lambda: done.append("plain"), count=3)
    assert done == ["ours", "plain"] * 3
    assert laps.shape == (2, 2)
    assert (laps >= 0).all()


def test_a_ratio_is_ours_by_the_references_wall_time() -> None:
    row = compare("a round", np.array([3.0, 2.0]), np.array([2.0, np.nan]), 1.3)
    assert (row.figure, row.limit, row.holds) == ("1.5 x", "1.3 x", False)
    assert row.seconds == "3 / 2 against 2 / -"
    assert within("memory", 1.3, 1.5, "GB").holds


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

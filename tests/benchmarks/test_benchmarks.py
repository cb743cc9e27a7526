"""The benchmark finds its parts, and measures what it says."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from shlex import split

import pytest
import torch

from cfl_flower.config.compose import compose_config
from tests.benchmarks.__main__ import PARTS
from tests.benchmarks.peers import table
from tests.benchmarks.peers.scripts import job as scripts


@pytest.mark.parametrize("part", PARTS)
def test_every_run_of_the_benchmark_composes(part: str) -> None:
    module = import_module(f"tests.benchmarks.{part}")
    for name, line in vars(module).items():
        if name.isupper() and "strategy=" in str(line):
            config = compose_config(split(line))
            assert config.participants <= config.clients


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


@pytest.mark.parametrize("work", table.WORKS)
def test_the_others_networks_are_ours(work: str, tmp_path: Path) -> None:
    overrides = f"{table.WORKS[work]} clients=20"
    prepared = table.Prepared(overrides)
    job = prepared.job(tmp_path, overrides)
    network = scripts.set_parameters(scripts.build(job.shapes), prepared.start[0])
    ours = prepared.model.load(prepared.start[0]).module
    x = torch.rand(3, 1, 28, 28)
    assert torch.allclose(network(x), ours(x), atol=1e-5)

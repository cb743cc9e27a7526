"""Runs on a GPU; `make test-gpu` on a machine that has one."""

from pathlib import Path

import pytest
import torch

from cfl_flower.analysis.saved import SavedRun, read_finished
from cfl_flower.config.compose import compose_config
from simulations.run import run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="PyTorch finds no CUDA device here"
    ),
]

STRATEGIES = ["fedavg", "fielding", "stocfl", "flexcfl", "fedccfa", "ccfl"]

SMALL = "rounds=4 drift.rounds=[3] model=mlp model.hidden=16 clients=24 participants=12"


def finish(folder: Path, *overrides: str) -> SavedRun:
    config = compose_config([*SMALL.split(), *overrides, f"output_dir={folder}"])
    run(config)
    found = read_finished(config)
    assert found is not None
    return found


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_gpu_changes_no_more_than_the_order_of_sums(strategy, tmp_path):
    chosen = f"strategy={strategy}", "engine=inprocess"
    on_gpu = finish(tmp_path / "gpu", *chosen, "gpus_per_worker=1")
    again = finish(tmp_path / "again", *chosen, "gpus_per_worker=1")
    on_cpu = finish(tmp_path / "cpu", *chosen)
    for ours, same, theirs in zip(
        on_gpu.rounds, again.rounds, on_cpu.rounds, strict=True
    ):
        assert ours["loss"] == same["loss"]
        assert ours["cluster_sizes"] == theirs["cluster_sizes"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-2)


@pytest.mark.parametrize(
    "engine", ["processes", pytest.param("ray", marks=pytest.mark.ray)]
)
def test_two_workers_share_a_gpu(engine, tmp_path):
    asked = [f"engine={engine}", "workers=2"]
    shared = finish(tmp_path / "shared", "gpus_per_worker=0.5", *asked)
    alone = finish(tmp_path / "alone", "gpus_per_worker=auto", "engine=inprocess")
    for ours, theirs in zip(shared.rounds, alone.rounds, strict=True):
        assert ours["cluster_sizes"] == theirs["cluster_sizes"]
        assert ours["loss"] == pytest.approx(theirs["loss"], 1e-3)

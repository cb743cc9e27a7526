"""The engine and the workers of a run that names none."""

import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.environment.machine import usable_cores
from simulations.engines.choice import VISIBLE, engine_of, workers_of


@pytest.mark.parametrize(
    ("overrides", "gpus", "cluster", "engine"),
    [
        ("", "", False, "processes"),
        ("", "0", False, "processes"),
        ("", "0", True, "ray"),
        ("gpus_per_worker=1", "0", True, "ray"),
        ("gpus_per_worker=1", "0", False, "inprocess"),
        ("gpus_per_worker=auto", "GPU-a", False, "inprocess"),
        ("gpus_per_worker=auto", "0,1", False, "processes"),
        ("gpus_per_worker=2", "0,1", False, "inprocess"),
        ("gpus_per_worker=0.5", "0", False, "processes"),
        ("gpus_per_worker=1 workers=2", "0", False, "processes"),
        ("gpus_per_worker=1 engine=processes", "0", False, "processes"),
        ("gpus_per_worker=1 engine=ray", "0", False, "ray"),
        ("engine=inprocess", "0,1", True, "inprocess"),
    ],
)
def test_processes_are_the_engine_but_for_a_cluster_and_a_single_gpu(
    overrides, gpus, cluster, engine, monkeypatch
):
    monkeypatch.setenv(VISIBLE, gpus)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if cluster:
        monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert engine_of(compose_config(overrides.split())) == engine


def test_a_worker_for_each_core_or_share_of_a_gpu_unless_some_are_named(monkeypatch):
    monkeypatch.setenv(VISIBLE, "0,1")
    assert workers_of(compose_config([])) == usable_cores()
    assert workers_of(compose_config(["workers=7"])) == 7
    assert workers_of(compose_config(["gpus_per_worker=0.5"])) == 4
    assert workers_of(compose_config(["gpus_per_worker=auto"])) == 2
    assert workers_of(compose_config(["gpus_per_worker=auto", "workers=4"])) == 4
    monkeypatch.setenv(VISIBLE, "")
    assert workers_of(compose_config(["gpus_per_worker=auto"])) == 1

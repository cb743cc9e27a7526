"""The engine and the workers of a run that names none."""

import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.environment.machine import usable_cores
from simulations.engines.choice import VISIBLE, engine_of, workers_of


@pytest.mark.parametrize(
    ("overrides", "cluster", "engine"),
    [
        ([], False, "processes"),
        ([], True, "ray"),
        (["gpus_per_worker=0.5"], False, "ray"),
        (["gpus_per_worker=0.5", "engine=processes"], False, "processes"),
        (["engine=inprocess"], True, "inprocess"),
    ],
)
def test_processes_are_the_engine_but_for_a_cluster_and_gpus(
    overrides, cluster, engine, monkeypatch
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if cluster:
        monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert engine_of(compose_config(overrides)) == engine


def test_a_worker_for_each_core_or_share_of_a_gpu_unless_some_are_named(monkeypatch):
    monkeypatch.setenv(VISIBLE, "0,1")
    assert workers_of(compose_config([])) == usable_cores()
    assert workers_of(compose_config(["workers=7"])) == 7
    assert workers_of(compose_config(["gpus_per_worker=0.5"])) == 4

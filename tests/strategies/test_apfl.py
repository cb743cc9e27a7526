"""APFL's promises."""

from __future__ import annotations

import pytest

from tests.conftest import Runner

ALL = ["participants=12", "drift.rounds=[]"]
FIXED = ["strategy=apfl", "strategy.adaptive=false", *ALL]


def test_only_the_global_model_is_sent(run_small: Runner) -> None:
    run = run_small("strategy=apfl")
    assert {row["bytes_up"] for row in run.rounds} == {6 * 650 * 4}
    assert {row["bytes_down"] for row in run.rounds} == {6 * 650 * 4}
    assert {row["num_clusters"] for row in run.rounds} == {1}


@pytest.mark.parametrize(("alpha", "other"), [(0, "fedavg"), (1, "local")])
def test_the_ends_of_alpha_are_other_methods(
    alpha: int, other: str, run_small: Runner
) -> None:
    plain = ["strategy.weighting=plain", *ALL]
    mixed = run_small(*FIXED, f"strategy.alpha={alpha}", folder="apfl")
    known = run_small(f"strategy={other}", *plain, folder=other)
    for ours, theirs in zip(mixed.rounds, known.rounds, strict=True):
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.01)
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)


def test_the_mixture_suits_its_client_better(run_small: Runner) -> None:
    mixed = run_small("strategy=apfl", *ALL, folder="apfl").rounds[-1]
    common = run_small("strategy=fedavg", *ALL, folder="fedavg").rounds[-1]
    assert mixed["accuracy"] > common["accuracy"]


def test_running_statistics_are_the_mixtures_own(run_small: Runner) -> None:
    network = ["model=shufflenet_v2", "dataset.size=9", "clients=4", "rounds=2"]
    small = ["participants=2", "partition.groups=2", "partition.samples=6"]
    local = ["strategy.local.epochs=1", "partition.test_samples=4", "drift.rounds=[]"]
    run = run_small("strategy=apfl", *network, *small, *local)
    assert not any(row["failures"] for row in run.rounds)

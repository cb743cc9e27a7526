"""APFL's promises."""

from __future__ import annotations

from tests.conftest import Runner

ALL = ["participants=12", "drift.rounds=[]"]


def test_the_mixture_suits_its_client_better(run_small: Runner) -> None:
    mixed = run_small("strategy=apfl", *ALL, folder="apfl").rounds[-1]
    common = run_small("strategy=fedavg", *ALL, folder="fedavg").rounds[-1]
    assert mixed["accuracy"] > common["accuracy"]

"""A method that is given one cluster runs, and everybody is in it."""

import pytest


@pytest.mark.contract
@pytest.mark.parametrize(
    "options",
    [
        "strategy=ifca",
        "strategy=ifca strategy.tested=best",
        "strategy=ifca strategy.migration=true",
        "strategy=ifca privacy.secure_sums=true participants=12",
        "strategy=flexcfl",
        "strategy=flexcfl strategy.migration=false",
        "strategy=fesem",
    ],
)
def test_one_cluster_has_all_clients(run_small, options):
    run = run_small(*options.split(), "strategy.clusters=1")
    assert {row["num_clusters"] for row in run.rounds} == {1}
    assert not any(row["failures"] for row in run.rounds)
    assert run.rounds[-1]["accuracy"] > run.rounds[0]["accuracy"]

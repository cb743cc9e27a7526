"""Ditto against its paper."""

from typing import Any


def accuracies(run: Any, round: int) -> dict[int, float]:
    """Return each client's accuracy in a round."""
    return {r["client"]: r["accuracy"] for r in run.clients if r["round"] == round}


def test_clients_that_never_took_part_are_served_the_global_model(run_small):
    # One batch holds all samples, so that the orders of batches do not matter.
    whole = ["participants=1", "rounds=1", "strategy.local.batch_size=999"]
    ditto = run_small("strategy=ditto", *whole, folder="ditto")
    fedavg = run_small("strategy=fedavg", *whole, folder="fedavg")
    one, other = accuracies(ditto, 1), accuracies(fedavg, 1)
    assert sum(one[client] != other[client] for client in one) <= 1

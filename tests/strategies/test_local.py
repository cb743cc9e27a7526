from __future__ import annotations

from tests.conftest import Runner


def test_each_client_is_a_cluster_of_its_own_and_sends_no_model(
    undisturbed: Runner,
) -> None:
    run = undisturbed("strategy=local")
    assert {(row["bytes_up"], row["bytes_down"]) for row in run.rounds} == {(0, 0)}
    assert {row["participants"] for row in run.rounds} == {6}
    assert {row["num_clusters"] for row in run.rounds} == {12}
    assert all(row["client"] == row["cluster"] for row in run.clients)


def test_a_client_that_did_not_train_keeps_its_model(run_small: Runner) -> None:
    run = run_small("strategy=local", "participants=1", "drift.rounds=[]")
    for before, after in ((1, 2), (2, 3), (3, 4)):
        one, two = (
            {r["client"]: r["accuracy"] for r in run.clients if r["round"] == round}
            for round in (before, after)
        )
        changed = [client for client in one if one[client] != two[client]]
        assert len(changed) <= 1

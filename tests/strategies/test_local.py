def test_each_client_is_a_cluster_of_its_own_and_sends_no_model(undisturbed):
    run = undisturbed("strategy=local")
    assert {(row["bytes_up"], row["bytes_down"]) for row in run.rounds} == {(0, 0)}
    assert {row["participants"] for row in run.rounds} == {6}
    assert {row["num_clusters"] for row in run.rounds} == {12}
    assert all(row["client"] == row["cluster"] for row in run.clients)

ALONE = ["strategy=local_async", "strategy.public=30", "participants=12"]


def test_models_that_travel_for_the_simulation_take_no_time(run_small):
    slow = ["devices.kbps=0.5"]
    fast = ["devices.kbps=5e5"]
    seconds = [
        [row["virtual_seconds"] for row in run_small(*ALONE, *each, folder=name).rounds]
        for name, each in (("slow", slow), ("fast", fast))
    ]
    assert seconds[0] == seconds[1]


def test_clients_go_on_from_their_own_models(run_small):
    shuffled = ["strategy.arrival=shuffled", "drift.rounds=[]"]
    run = run_small(*ALONE, *shuffled)
    # What a client uploaded is what it is tested with next.
    for row in run.clients:
        assert row["accuracy"] == row["before"]
    changed = [
        client
        for client in range(12)
        if len({r["accuracy"] for r in run.clients if r["client"] == client}) > 1
    ]
    assert changed

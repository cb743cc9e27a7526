import numpy as np

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.types import Result
from tests.conftest import open_method


def test_static_clusters_start_as_fieldings_and_never_move(run_small):
    static = run_small("strategy=static", folder="static")
    fielding = run_small("strategy=fielding", folder="fielding")
    clusters = {row["client"]: row["cluster"] for row in fielding.clients[:12]}
    assert all(row["cluster"] == clusters[row["client"]] for row in static.clients)
    assert static.rounds[0]["accuracy"] == fielding.rounds[0]["accuracy"]
    assert static.rounds[1]["ari"] == 1
    assert static.rounds[2]["ari"] < 1


def test_histograms_are_reported_once_and_no_drift_is_measured(undisturbed):
    run = undisturbed("strategy=static")
    for key in ("drifted", "moved", "reclustered", "heterogeneity"):
        assert {row[key] for row in run.rounds} == {None}
    model, histograms = 6 * 650 * 4, 12 * 10 * 4
    assert [row["bytes_up"] for row in run.rounds] == [model + histograms] + [model] * 3


def report(client: int, label: int) -> Result:
    histogram = np.eye(10, dtype=np.float32)[label]
    return Result(client, 10, report=DriftReport(histogram, 10))


def test_a_late_client_joins_the_nearest_centre_and_moves_none(tmp_path):
    static = open_method(tmp_path, "strategy=static", "clients=8", "participants=4")
    static.welcome(1, [report(client, client % 2) for client in range(6)])
    before = static.state.centres.copy()
    static.welcome(2, [report(6, 1), report(7, 5)])
    assert static.state.clusters.tolist() == [0, 1, 0, 1, 0, 1, 1, 0]
    assert np.array_equal(static.state.centres, before)

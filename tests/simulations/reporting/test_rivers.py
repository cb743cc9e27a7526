"""Clusters as a river: colours that last, and who moves."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cfl_flower.analysis.saved import SavedRun, load_run
from simulations.reporting.rivers import match_clusters, river, true_groups
from simulations.reporting.sections import divide


@pytest.fixture
def run(folders: list[Path]) -> SavedRun:
    """A run of four rounds of twelve clients, with a drift before round 3."""
    return load_run(folders[1])


def with_clusters(run: SavedRun, clusters: np.ndarray) -> SavedRun:
    """Return a run whose clients were in clusters, of shape (clients, rounds)."""
    tests = [
        {"round": t + 1, "client": client, "cluster": int(cluster), "accuracy": 0.5}
        for client, row in enumerate(clusters)
        for t, cluster in enumerate(row)
    ]
    return replace(run, tests=tests)


def test_clusters_have_the_numbers_of_their_concepts_however_they_are_counted(run):
    full = with_clusters(run, np.zeros((12, 4)))
    truth = true_groups(full)
    # Each round counts anew.
    shuffled = np.stack([(truth[:, t] + t) % 50 for t in range(4)], axis=1)
    np.testing.assert_array_equal(match_clusters(with_clusters(run, shuffled)), truth)


def test_a_second_cluster_of_a_concept_keeps_a_colour_of_its_own(run):
    truth = true_groups(with_clusters(run, np.zeros((12, 4))))[:, :2]
    first = np.flatnonzero(truth[:, 0] == 0)
    split = truth.copy()
    split[first[0]] = 99
    found = match_clusters(with_clusters(run, np.stack([split[:, 0]] * 4, axis=1)))
    own = found[first[0]]
    others = np.delete(found[:, :2], first[0], axis=0)
    assert own[0] == own[1] >= true_groups(with_clusters(run, split)).max()
    np.testing.assert_array_equal(others, np.delete(truth, first[0], axis=0))


def test_every_client_flows_from_each_round_to_the_next(run):
    clusters = np.array([[0, 0, 0, 0]] * 6 + [[1, 1, 1, 0]] + [[1, 1, 1, 1]] * 5)
    chart = river(with_clusters(run, clusters), clusters)
    ways, blocks, drifts = (each["data"]["values"] for each in chart.layers[:3])
    assert [block["clients"] for block in blocks] == [6, 6, 6, 6, 6, 6, 7, 5]
    starts = {way["way"]: way["high"] - way["low"] for way in ways}
    assert sum(starts.values()) == pytest.approx(12 * 3)
    # Who joins a cluster is below those who were there.
    ends = {way["way"]: (way["low"], way["high"]) for way in ways}
    assert (ends["2-0-0"], ends["2-1-0"]) == ((0, 6), (6, 7))
    assert {way["way"] for way in ways if way["opacity"] > 0.5} == {"2-1-0"}
    assert [drift["at"] for drift in drifts] == [1.5]


def test_rivers_are_of_methods_with_several_clusters(run, tmp_path):
    (stream,) = divide([run])
    assert [each.title for each in stream.rivers] == ["true concepts", "fielding"]
    stream.rivers[1].save(tmp_path)
    assert (tmp_path / "fielding-river.svg").is_file()
    alone = [{**row, "cluster_sizes": [12]} for row in run.rounds]
    (stream,) = divide([replace(run, rounds=alone)])
    assert stream.rivers == []


@pytest.mark.parametrize(
    ("sizes", "drawn"),
    [
        ([[12], [12], [12], [12]], False),
        # Clusters without clients are none.
        ([[12, 0, 0], [0, 12, 0], [12, 0, 0], [12, 0, 0]], False),
        # One for each client, as of local training.
        ([[1] * 12, [1] * 12, [1] * 12, [1] * 12], False),
        ([[1] * 12, [12], [1] * 12, [1] * 12], False),
        ([[12], [12], [11, 1], [12]], True),
        ([[1] * 12, [2, *[1] * 10], [6, 6], [6, 6]], True),
    ],
)
def test_one_cluster_and_one_for_each_client_are_no_river(sizes, drawn, run):
    pairs = zip(run.rounds, sizes, strict=True)
    rounds = [{**row, "cluster_sizes": own} for row, own in pairs]
    (stream,) = divide([replace(run, rounds=rounds)])
    assert [each.title for each in stream.rivers][1:] == ["fielding"] * drawn

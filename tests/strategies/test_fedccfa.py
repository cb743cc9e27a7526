"""FedCCFA against its paper, step by step and as a whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.communication.results import Results
from cfl_flower.runs.measures import class_scores
from cfl_flower.types import Result
from strategies.fedccfa import class_distances, cluster_classes, cluster_means
from tests.conftest import open_method

CCFA = [
    *("strategy=fedccfa", "model=mlp", "model.hidden=32", "partition.purity=0"),
    *("drift=sudden", "drift.rounds=[5]", "clients=20", "participants=20", "rounds=8"),
    *("strategy.local.epochs=5", "strategy.local.momentum=0.9"),
    *("strategy.local.learning_rate=0.05", "strategy.start=2"),
]


@pytest.mark.parametrize(
    ("option", "reports", "anchors"),
    [
        # Class 0: own rows 1 and 3 are one cluster, class 1 only the first has.
        ("row_weighting=uniform", [[1, 1], [1, 0]], [[2, 5], [2, 7]]),
        ("row_weighting=samples", [[30, 9], [10, 0]], [[1.5, 5], [1.5, 7]]),
        # Those of all participants go to everyone.
        ("anchors=global", [[1, 1], [1, 0]], [[2, 5], [2, 5]]),
    ],
)
def test_who_holds_a_class_gets_the_means_of_holders(
    option, reports, anchors, tmp_path
):
    options = [*CCFA, "strategy.clustering=local", f"strategy.{option}"]
    # As in the paper: one client's anchor may be three times as long as the other's.
    options.append("strategy.weight_cap=null")
    method = open_method(tmp_path, *options, "clients=2", "participants=2")
    extractor, classifier = method.split.lengths
    results = Results()
    values = (([1, 5], [30, 9]), ([3, 7], [10, 0]))
    for client, (points, counts) in enumerate(values):
        told = np.zeros((10, 32), np.float32)
        told[:2] = np.array(points)[:, None]
        classes = np.float32([*counts, *[0] * 8])
        arrays = [np.zeros(extractor), np.ones(classifier), told.ravel()]
        metrics = {"classes": classes.tobytes()}
        result = Result(
            client, 10, [np.float32(each) for each in arrays], None, metrics
        )
        read = method.read_result("train", result)
        assert read.report[:2].tolist() == reports[client]
        results.append(read)
    method.absorb_train(1, results)
    for client, expected in enumerate(anchors):
        sent = method.state.anchors.points
        if not method.shares_anchors:
            sent = method.state.returned[client][1].reshape(10, 32)
        assert sent[:2, 0].tolist() == expected


# Clusters of classes: eq. 4, 5 and 7


def test_distances_by_hand():
    # Class 0: cosines of (1,0), (1,0), (0,1) are 1, 0, 0.
    rows = np.array([[[1.0, 0.0]], [[2.0, 0.0]], [[0.0, 3.0]]])
    gaps = class_distances(rows, np.ones((3, 1)))
    # One third client each: q=2 tells 0 and 1 apart by |0 - 0|; q=1 tells 0 and 2
    # apart by |1 - 0|.
    assert gaps[0].tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert cluster_classes(gaps, 0.1).ravel().tolist() == [0, 0, 1]


def test_zero_rows_and_few_holders_are_borne():
    rows = np.zeros((4, 3, 2))
    rows[:, 0] = [[1, 0], [0, 0], [0, 0], [1, 0]]
    rows[:2, 1] = [[1, 0], [1, 0.1]]
    weights = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1], [1, 0, 0]])
    gaps = class_distances(rows, weights)
    assert np.isfinite(gaps[0]).all()
    clusters = cluster_classes(gaps, 0.1)
    # Two holders by their cosine distance, one alone, none at all.
    assert clusters[:, 1].tolist() == [0, 0, -1, -1]
    assert clusters[:, 2].tolist() == [-1, -1, 0, -1]
    assert cluster_classes(class_distances(rows[:1], weights[:1]), 0.1).tolist() == [
        [0, 0, -1]
    ]


@given(
    st.lists(st.integers(3, 6), min_size=2, max_size=3),
    st.integers(0, 99),
    st.floats(0, 0.6),
)
@settings(max_examples=25, deadline=None)
def test_planted_clusters_are_found_whoever_lacks_a_class(sizes, seed, lacking):
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    bases = np.eye(5)[: len(sizes)]
    rows = bases[truth][:, None] + 0.01 * rng.normal(size=(len(truth), 4, 5))
    weights = (rng.random((len(truth), 4)) >= lacking) * 1.0
    # Fewer than a few of a cluster look like any others that few are alike to.
    weights[np.concatenate([np.flatnonzero(truth == k)[:3] for k in set(truth)])] = 1
    clusters = cluster_classes(class_distances(rows, weights), 0.1)
    assert ((clusters >= 0) == (weights > 0)).all()
    scores = class_scores(np.repeat(truth[:, None], 4, axis=1), clusters)
    assert scores == [1, 1, 1, 1]


def test_members_of_a_cluster_get_its_mean_and_nobody_elses():
    # The case that the authors' code gets wrong: anchors 1, 2, 3, 4, cluster {0, 1}.
    values = np.array([1.0, 2, 3, 4]).reshape(4, 1, 1)
    clusters = np.array([[0], [0], [1], [-1]])
    with np.errstate(all="raise"):
        uniform = cluster_means(values, clusters, np.ones((4, 1)))
    assert uniform.ravel().tolist() == [1.5, 1.5, 3, 4]
    assert values.ravel().tolist() == [1, 2, 3, 4]
    weights = np.array([[1.0], [3], [5], [0]])
    weighted = cluster_means(values, clusters, weights)
    assert weighted.ravel().tolist() == [1.75, 1.75, 3, 4]
    # A class that nobody has says nothing of the next one.
    both = [np.repeat(each, 2, axis=1) for each in (values, clusters, weights)]
    both[1][:, 0] = -1
    assert cluster_means(*both)[:, 1].ravel().tolist() == [1.75, 1.75, 3, 4]


# The whole


def test_class_clusters_are_the_true_concepts(undisturbed):
    run = undisturbed(*CCFA)
    before, after = run.rounds[3], run.rounds[-1]
    assert before["class_clusters"] == [1] * 10
    assert before["class_ari"] == [1] * 10
    swapped = [after["class_clusters"][label] for label in (1, 2, 3, 4, 5, 6)]
    assert swapped == [2] * 6
    assert after["class_ari"] == [1] * 10


def test_the_oracle_clusters_by_the_true_concepts(run_small):
    options = [*CCFA, "rounds=2", "drift.rounds=[2]", "strategy.local.epochs=1"]
    run = run_small(*options, "strategy.clustering=oracle")
    before, after = run.rounds
    assert before["class_ari"] == after["class_ari"] == [1] * 10
    assert before["class_clusters"] == [1] * 10
    assert after["class_clusters"] == [1, 2, 2, 2, 2, 2, 2, 1, 1, 1]


def test_few_participants_are_compared_with_one_warning(run_small, caplog):
    options = [*CCFA, "rounds=3", "drift.rounds=[]"]
    two = run_small(*options, "participants=2", folder="two")
    alone = run_small(*options, "participants=1", folder="one")
    run_small(*options, "participants=3", folder="three")
    said = [each for each in caplog.messages if "participants" in each]
    assert ["participants=2" in each for each in said] == [True, False]
    assert alone.rounds[0]["class_clusters"] == [1] * 10
    # Both have all classes, and mean the same by them.
    assert two.rounds[-1]["class_clusters"] == [1] * 10


def test_clients_without_some_classes_take_part_with_the_others(run_small):
    few = ["partition.purity=1", "rounds=4"]
    run = run_small(*CCFA, *few, "strategy.start=0")
    assert run.rounds[-1]["accuracy"] > 0.5
    assert all(score is not None for score in run.rounds[-1]["class_ari"])


def test_generalised_and_personalised_accuracy_are_both_there(run_small):
    options = [*CCFA, "partition.purity=0.6", "rounds=2"]
    whole = run_small(*options, "partition.tests=whole", folder="whole")
    own = run_small(*options, folder="own")
    last = whole.rounds[-1]
    assert {row["num_examples"] for row in whole.clients} == {540}
    assert last["accuracy"] == pytest.approx(last["accuracy_mean"])
    assert last["personalised"] == pytest.approx(own.rounds[-1]["accuracy_mean"])
    assert "personalised" not in own.rounds[-1]
    assert {row["personalised"] for row in own.clients} == {None}
    assert last["personalised"] > last["accuracy"]

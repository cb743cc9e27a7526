import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from cfl_flower.learning.outcomes import count_outcomes
from cfl_flower.runs.measures import (
    adjusted_rand_index,
    class_scores,
    note_measures,
    note_tests,
)
from cfl_flower.runs.record import RoundRecord
from cfl_flower.types import OUTCOMES, Result


def result(client: int, correct: int, count: int, loss: float, **more: int) -> Result:
    return Result(client, count, [], loss, {"correct": correct, **more})


def test_accuracy_is_recorded_over_samples_and_over_clients():
    record = RoundRecord(3)
    results = [result(0, 9, 10, 0.5), result(7, 15, 30, 1.5)]
    rows = note_tests(record, results, np.array([1, 0]))
    assert record.accuracy == pytest.approx(24 / 40)
    assert record.accuracy_mean == pytest.approx((0.9 + 0.5) / 2)
    assert record.loss == pytest.approx((10 * 0.5 + 30 * 1.5) / 40)
    assert record.measures == {}
    seen = [(r.round, r.client, r.cluster, r.accuracy, r.num_examples) for r in rows]
    assert seen == [(3, 0, 1, 0.9, 10), (3, 7, 0, 0.5, 30)]


def test_who_claims_many_tests_counts_up_to_the_cap():
    held = {"validation_correct": 1, "validation_tested": 2}
    results = [*(result(client, 8, 10, 0.5, **held) for client in range(4))]
    lies = {"validation_correct": 0, "validation_tested": 2**40}
    results.append(result(7, 0, 2**40, 2.0, **lies))
    record = RoundRecord(1)
    note_tests(record, results, np.zeros(5, np.int64), {0}, cap=5.0)
    # Of five with 10 samples and 5 * 10, and with 2 and 5 * 2 held out.
    assert record.accuracy == pytest.approx(32 / 90)
    assert record.loss == pytest.approx((40 * 0.5 + 50 * 2.0) / 90)
    assert record.measures["validation_accuracy"] == pytest.approx(4 / 18)
    assert record.measures["capped_tests"] == [7]
    assert record.measures["accuracy_honest"] == pytest.approx(24 / 80)
    plain = RoundRecord(1)
    note_tests(plain, results, np.zeros(5, np.int64))
    assert plain.accuracy is not None
    assert plain.accuracy < 1e-9
    assert "capped_tests" not in plain.measures


def test_measures_of_labels_have_the_cap_too():
    """All find their labels but one client, who claims 2^40 times as many tests."""
    labels = torch.arange(9) % 3
    results = []
    for client, (times, off) in enumerate([*[(1, 0)] * 4, (2**40, 1)]):
        counts = times * count_outcomes(9 * torch.eye(3)[(labels + off) % 3], labels)
        told = {OUTCOMES: counts.astype("<f8").tobytes()}
        one = result(client, 9 * (1 - off), 9 * times, 0.5)
        results.append(replace(one, telemetry=told))
    found = []
    for cap in (5.0, None):
        record = RoundRecord(1)
        rows = note_tests(record, results, np.zeros(5, np.int64), cap=cap)
        note_measures(record, results, rows, ["macro_f1", "per_class"], 3, cap)
        found.append(record.measures["macro_f1"])
        # Numbers of samples stay what they are.
        held = [each["support"] for each in record.measures["per_class"]]
        assert held == [3 * (4 + 2**40)] * 3
    # 36 tests are right, and 45 of the liar's count.
    assert found == [pytest.approx(36 / 81), pytest.approx(0, abs=1e-9)]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=9)
)
def test_a_cap_that_nobody_reaches_changes_no_bit(pairs):
    sizes = [max(1, *pair) for pair in pairs]
    results = [
        result(client, min(pair), size, 0.3 * size)
        for client, (pair, size) in enumerate(zip(pairs, sizes, strict=True))
    ]
    found = []
    for cap in (None, 1e9):
        record = RoundRecord(1)
        note_tests(record, results, np.zeros(len(results), np.int64), cap=cap)
        found.append((record.accuracy, record.loss, record.measures))
    assert found[0] == found[1]
    assert found[0][0] == sum(map(min, pairs)) / sum(sizes)


def test_honest_and_personalised_accuracies_are_recorded_too():
    record = RoundRecord(1)
    own = {"own_correct": 3, "own_tested": 4}
    results = [result(0, 8, 10, 1.0, **own), result(1, 0, 10, 1.0)]
    rows = note_tests(record, results, np.array([0, 0]), malicious=frozenset({1}))
    assert record.measures == {"accuracy_honest": 0.8, "personalised": 0.75}
    assert [row.personalised for row in rows] == [0.75, None]
    note_tests(record, results, np.array([0, 0]), malicious=frozenset({0, 1}))
    assert record.measures["accuracy_honest"] is None


def test_a_round_without_tests_has_no_accuracy():
    record = RoundRecord(1)
    assert note_tests(record, [], np.zeros(0, np.int64), malicious={1}) == []
    assert record == RoundRecord(1)


LABELS = st.integers(-1, 8)


@given(st.lists(st.tuples(LABELS, LABELS), max_size=60))
def test_the_index_is_scikit_learns_to_the_bit(pairs):
    truth, clusters = np.array(pairs, np.int64).reshape(-1, 2).T
    expected = float(adjusted_rand_score(truth, clusters))
    assert adjusted_rand_index(truth, clusters) == expected


def test_the_index_of_many_clients_is_scikit_learns_too():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 50, 300_000)
    clusters = np.where(rng.random(300_000) < 0.7, truth, rng.integers(0, 9, 300_000))
    expected = float(adjusted_rand_score(truth, clusters))
    assert adjusted_rand_index(truth, clusters) == expected
    alone = np.arange(300_000)
    assert adjusted_rand_index(alone, truth) == float(adjusted_rand_score(alone, truth))


def test_a_measure_of_numpy_is_written_as_a_number():
    record = RoundRecord(1)
    record.measures["share"] = np.float32(0.5)
    record.measures["sizes"] = np.array([1, 2])
    row = json.loads(json.dumps(record.row()))
    assert row["share"] == 0.5
    assert row["sizes"] == [1, 2]


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, np.array([np.inf])])
def test_a_measure_that_no_file_can_hold_is_named(value):
    record = RoundRecord(1)
    record.measures["share"] = value
    with pytest.raises(TypeError, match=r"measures\['share'\]=.* use finite numbers"):
        record.row()


def test_what_profiles_select_is_scored_beside_what_is_served():
    record = RoundRecord(1)
    found = {"unlabelled_correct": 3, "unlabelled_tested": 4}
    more = {"unlabelled_correct": 0, "unlabelled_tested": 2}
    results = [result(0, 8, 10, 1.0, **found), result(1, 0, 10, 1.0, **more)]
    rows = note_tests(record, [*results, result(2, 1, 1, 1.0)], np.zeros(3, np.int64))
    assert record.measures == {"accuracy_unlabelled": 0.5}
    assert [row.row().get("accuracy_unlabelled") for row in rows] == [0.75, 0.0, None]


def test_scores_of_a_class_are_of_those_who_hold_it():
    truth = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 0, 0]])
    clusters = np.array([[0, -1, -1], [1, 0, -1], [1, 1, -1], [-1, 0, -1]])
    expected = adjusted_rand_score([0, 0, 1], [0, 1, 1])
    assert class_scores(truth, clusters) == [pytest.approx(expected), 1.0, None]
    assert expected < 0

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cfl_flower.data.stream import Stream
from cfl_flower.models import Mclr, initial_vector
from cfl_flower.representations import digest, label_histogram
from clients.base import ClusteredClient, Surroundings

ASK = {"representation": "label_histogram"}
INITIAL = initial_vector(Mclr(), (1, 8, 8), 10, 0)

Surround = Callable[..., Surroundings]


def histogram(stream: Stream, round: int) -> np.ndarray:
    return label_histogram(stream.view(2, round).labels, 10)


def test_the_hello_brings_sizes_and_the_first_representation(
    stream: Stream, surround: Surround
) -> None:
    found = ClusteredClient(surround(0)).get_properties(ASK)
    assert found["num_examples"] == len(stream.view(2, 1).labels)
    assert found["representation"] == histogram(stream, 1).tobytes()
    assert set(ClusteredClient(surround(0)).get_properties({})) == {"num_examples"}


def test_training_starts_from_the_received_model_and_leaves_it_alone(
    stream: Stream, surround: Surround
) -> None:
    received = INITIAL.copy()
    (trained,), count, metrics = ClusteredClient(surround(1)).fit([received], {})
    assert np.array_equal(received, INITIAL)
    assert not np.array_equal(trained, received)
    assert count == len(stream.view(2, 1).labels)
    assert metrics == {}


def test_training_depends_on_round_and_client_only(
    stream: Stream, surround: Surround
) -> None:
    one, again, later = (
        ClusteredClient(surround(round)).fit([INITIAL], {})[0][0] for round in (1, 1, 2)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, later)


def test_a_test_counts_correct_answers_on_the_data_of_the_round(
    stream: Stream, surround: Surround
) -> None:
    loss, count, metrics = ClusteredClient(surround(1)).evaluate([INITIAL], {})
    assert count == len(stream.view(2, 1).test_indices)
    assert 0 <= int(metrics["correct"]) <= count
    assert loss > 0


@pytest.mark.parametrize(("round", "reports"), [(1, False), (2, True), (3, False)])
def test_a_client_reports_when_the_next_rounds_data_are_others(
    round: int, reports: bool, stream: Stream, surround: Surround
) -> None:
    held = digest(histogram(stream, round))
    config = {**ASK, "held": held}
    _, _, metrics = ClusteredClient(surround(round)).evaluate([INITIAL], config)
    assert ("representation" in metrics) is reports


def test_a_client_that_is_not_tested_still_reports(
    stream: Stream, surround: Surround
) -> None:
    config = {**ASK, "held": "unknown", "test": False}
    loss, count, metrics = ClusteredClient(surround(1)).evaluate([], config)
    assert (loss, count) == (0.0, 0)
    samples = len(stream.view(2, 2).labels)
    report = {"representation": histogram(stream, 2).tobytes(), "samples": samples}
    assert metrics == report


def test_a_change_within_the_tolerance_is_no_drift(
    stream: Stream, surround: Surround
) -> None:
    first, after = histogram(stream, 2), histogram(stream, 3)
    change = float(abs(first - after).sum())
    for factor, reports in ((1.01, False), (0.99, True)):
        ask = {**ASK, "tolerance": factor * change}
        folder = str(factor)
        ClusteredClient(surround(0, folder)).get_properties(ask)
        config = {**ask, "held": digest(first)}
        _, _, metrics = ClusteredClient(surround(2, folder)).evaluate([INITIAL], config)
        assert ("representation" in metrics) is reports


def test_a_report_that_the_server_does_not_hold_is_sent_again(
    stream: Stream, surround: Surround
) -> None:
    ask = {**ASK, "tolerance": 0.5}
    ClusteredClient(surround(0)).get_properties(ask)
    config = {**ask, "held": digest(histogram(stream, 1))}
    for round in (2, 3):
        _, _, metrics = ClusteredClient(surround(round)).evaluate([INITIAL], config)
        assert "representation" in metrics


def test_a_flipping_client_trains_on_other_labels_and_is_tested_on_its_own(
    surround: Surround,
) -> None:
    honest = ClusteredClient(surround(1))
    flipping = ClusteredClient(replace(surround(1), attack="flip"))
    models = [client.fit([INITIAL], {})[0][0] for client in (honest, flipping)]
    assert not np.array_equal(*models)
    tests = [client.evaluate([INITIAL], {}) for client in (honest, flipping)]
    assert tests[0] == tests[1]

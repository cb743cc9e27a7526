import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

from cfl_flower.learning.outcomes import (
    BINS,
    Outcomes,
    count_length,
    count_outcomes,
    measure_outcomes,
    read_outcomes,
)
from cfl_flower.types import FloatArray


def certain(answers: list[int], classes: int, share: float = 0.999999) -> torch.Tensor:
    """Return logits that give an answer a share, and all others an equal one."""
    shares = torch.full((len(answers), classes), (1 - share) / (classes - 1))
    shares[range(len(answers)), answers] = share
    return shares.double().log()


def test_calibration_error_equals_that_by_hand():
    # Five with 0.62 of which four are right, and three with 0.9, of which one is.
    shares = [certain([0] * 5, 3, share=0.62), certain([1] * 3, 3, share=0.9)]
    truth = torch.tensor([0, 0, 0, 0, 1, 1, 0, 2])
    found = measure_outcomes(count_outcomes(torch.cat(shares), truth), 3)
    expected = (abs(4 - 5 * 0.62) + abs(1 - 3 * 0.9)) / 8
    assert found["calibration"] == pytest.approx(expected)


def test_auc_equals_that_by_hand():
    odds = torch.tensor([-2.0, 0.5, 1.0, 0.5, 3.0])
    scores = torch.stack([torch.zeros(5), odds], 1)
    truth = torch.tensor([0, 0, 1, 1, 1])
    # Of six pairs five are ordered rightly, and one is a tie.
    found = measure_outcomes(count_outcomes(scores, truth), 2)
    assert found["auc"] == pytest.approx(5.5 / 6)
    alone = measure_outcomes(count_outcomes(scores[:2], truth[:2]), 2)
    assert math.isnan(alone["auc"])


def drawn(seed: int, classes: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=n)
    scores = rng.normal(0, 2, (n, classes))
    scores[np.arange(n), truth] += rng.uniform(0, 3)
    return torch.from_numpy(scores).float(), torch.from_numpy(truth)


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 200))
def test_measures_equal_scikit_learns_up_to_the_bins_of_scores(seed, classes, n):
    scores, truth = drawn(seed, classes, n)
    counts = count_outcomes(scores, truth)
    found = measure_outcomes(counts, classes)
    answers = scores.argmax(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        balanced = balanced_accuracy_score(truth, answers)
        f1 = f1_score(truth, answers, average="macro")
    assert found["balanced_accuracy"] == pytest.approx(balanced)
    assert found["macro_f1"] == pytest.approx(f1)
    assert 0 <= found["calibration"] <= 1
    if classes == 2 and len(set(truth.tolist())) == 2:
        first, second = counts[-1024:].reshape(2, 512)
        bound = first @ second / (first.sum() * second.sum()) / 2
        exact = roc_auc_score(truth, scores[:, 1] - scores[:, 0])
        assert abs(found["auc"] - exact) <= bound + 1e-9


@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(2, 300))
def test_counts_of_parts_add_up_and_arrive(seed, classes, n):
    scores, truth = drawn(seed, classes, n)
    outcomes = Outcomes(classes)
    for part in (slice(n // 3), slice(n // 3, n)):
        outcomes.note(scores[part], truth[part])
    found = read_outcomes(outcomes.to_bytes(), classes, n)
    np.testing.assert_allclose(found, count_outcomes(scores, truth))


def test_a_model_that_diverged_is_counted_nevertheless():
    scores = torch.tensor([[math.nan, 0.0], [math.inf, -math.inf]])
    counts = count_outcomes(scores, torch.tensor([0, 1]))
    assert read_outcomes(counts.tobytes(), 2, 2).sum() > 0


def changed(place: int, value: float) -> FloatArray:
    counts = count_outcomes(certain([0, 1, 1], 2, 0.9), torch.tensor([0, 1, 0]))
    counts[place] = value
    return counts


@pytest.mark.parametrize(
    "sent",
    [
        None,
        "text",
        b"",
        changed(0, 2)[:-1].tobytes(),
        *(changed(0, each).tobytes() for each in (3, 1, -2, math.nan, math.inf, 2.5)),
        changed(2, 0).tobytes(),
        changed(4, 2).tobytes(),
        changed(6 + 13, 9).tobytes(),
        changed(6 + BINS + 13, 1).tobytes(),
        changed(-1, 5).tobytes(),
    ],
)
def test_what_cannot_be_counts_is_refused(sent):
    with pytest.raises(ValueError, match="no "):
        read_outcomes(sent, 2, 3)
    assert len(read_outcomes(changed(0, 2).tobytes(), 2, 3)) == count_length(2)

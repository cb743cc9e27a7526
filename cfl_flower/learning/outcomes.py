"""What a test counts, and the measures that follow from counts.

Counts add up over blocks, clients and clusters, so that a measure of all clients is
that of their samples together. They are one vector of float64: for each of L labels
its samples, the answers that name it, and those of them that are right; for each of
`BINS` the sum of the confidences in it, and the right answers; and for two labels, how
many samples of each have their score in each of `SCORES` bins.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
from torch import Tensor

from cfl_flower.types import Counted, FloatArray

COUNTED: tuple[Counted, ...] = get_args(Counted)

BINS = 15
"""Bins of equal width for confidences from 0 to 1 (Guo et al., 2017)."""

SCORES = 512
"""Bins of equal width for the log-odds of the second of two labels."""

HIGHEST = 16.0
"""The log-odds, up or down, beyond which all are in one bin."""


def count_length(classes: int) -> int:
    """Return the length of the counts of a test with L labels."""
    return 3 * classes + 2 * BINS + (2 * SCORES if classes == 2 else 0)


def count_outcomes(scores: Tensor, labels: Tensor) -> FloatArray:
    """Return the counts of a test.

    ``scores`` are the logits, or the logarithms of the probabilities, of n samples,
    shape (n, L); ``labels`` have shape (n,).
    """
    classes = scores.shape[1]
    truth = labels.cpu().numpy()
    # Of a model that diverged, whose test the server refuses for its loss.
    found = scores.cpu().double().nan_to_num()
    shares = found.softmax(1).numpy()
    answers = found.argmax(1).numpy()
    right = answers == truth
    confidence = shares[np.arange(len(truth)), answers]
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    parts = [
        np.bincount(truth, minlength=classes),
        np.bincount(answers, minlength=classes),
        np.bincount(truth[right], minlength=classes),
        np.bincount(bins, confidence, minlength=BINS),
        np.bincount(bins, right, minlength=BINS),
    ]
    if classes == 2:
        odds = (found[:, 1] - found[:, 0]).numpy()
        place = np.floor((odds + HIGHEST) * (SCORES / (2 * HIGHEST)))
        place = np.clip(place, 0, SCORES - 1).astype(np.int64)
        parts += [np.bincount(place[truth == y], minlength=SCORES) for y in (0, 1)]
    return np.concatenate(parts).astype(np.float64)


class Outcomes:
    """Adds up the counts of a test's blocks."""

    def __init__(self, classes: int) -> None:
        self.counts = np.zeros(count_length(classes))

    def note(self, scores: Tensor, labels: Tensor) -> None:
        """Add some samples; see `count_outcomes`."""
        self.counts += count_outcomes(scores, labels)

    def to_bytes(self) -> bytes:
        """Return the counts as they are sent."""
        return self.counts.astype("<f8").tobytes()


def read_outcomes(sent: object, classes: int, tested: int) -> FloatArray:
    """Return the counts that a client sent of its tested samples.

    Raises `ValueError` for anything that cannot be the counts of as many samples.
    """
    if not isinstance(sent, bytes) or len(sent) != 8 * count_length(classes):
        raise ValueError(f"no {count_length(classes)} numbers")
    counts = np.frombuffer(sent, "<f8")
    (samples, answers, right), (confidences, hits), scores = _divide(counts, classes)
    whole = np.concatenate([samples, answers, right, hits, scores.ravel()])
    fits = (
        bool(np.isfinite(counts).all())
        and bool((counts >= 0).all())
        and bool((whole % 1 == 0).all())
        and samples.sum() == answers.sum() == tested
        and (classes != 2 or bool((scores.sum(axis=1) == samples).all()))
        and right.sum() == hits.sum()
        and bool((right <= np.minimum(samples, answers)).all())
        # A sum of as many numbers up to 1 may be rounded up.
        and confidences.sum() <= tested * (1 + 1e-9)
    )
    if not fits:
        raise ValueError(f"no counts of {tested} samples")
    return counts


def _divide(
    counts: FloatArray, classes: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the counts by label, by confidence, and by score, of shape (..., 2, m).

    Those by label have shape (..., 3, L); m is 0 unless there are two labels.
    """
    ends = [3 * classes, 3 * classes + 2 * BINS]
    of_labels, of_bins, of_scores = np.split(counts, ends, axis=-1)
    before = counts.shape[:-1]
    return (
        of_labels.reshape(*before, 3, classes),
        of_bins.reshape(*before, 2, BINS),
        of_scores.reshape(*before, 2, of_scores.shape[-1] // 2),
    )


def measure_outcomes(counts: FloatArray, classes: int) -> dict[Counted, FloatArray]:
    """Return the measures that follow from counts; NaN where they have no value.

    The counts have shape (..., `count_length`), all measures (...), but for the counts
    of each class, (..., L, 3), in the order of `CLASS_COUNTS`. The balanced
    accuracy is the mean recall of the labels that there are; macro-F1 the mean F1 of
    those, and of labels that answers name; the calibration error the mean distance of
    confidence and accuracy, bin by bin (Guo et al., 2017, eq. 3). The AUC is the share
    of pairs of a sample of each label that scores order rightly, with half of those in
    one bin of scores: so it is off by at most half of the share of such pairs.
    """
    of_labels, of_bins, of_scores = _divide(counts, classes)
    samples, answers, right = np.moveaxis(of_labels, -2, 0)
    confidences, hits = np.moveaxis(of_bins, -2, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        recall = right / samples
        f1 = 2 * right / (samples + answers)
        tested = samples.sum(-1)
        found: dict[Counted, FloatArray] = {
            "balanced_accuracy": np.nansum(recall, -1) / (samples > 0).sum(-1),
            "macro_f1": np.nansum(f1, -1) / (samples + answers > 0).sum(-1),
            "calibration": abs(hits - confidences).sum(-1) / tested,
            "per_class": of_labels.swapaxes(-1, -2),
        }
        if classes == 2:
            first, second = np.moveaxis(of_scores, -2, 0)
            below = first.cumsum(-1) - first / 2
            pairs = first.sum(-1) * second.sum(-1)
            found["auc"] = (second * below).sum(-1) / pairs
    return found

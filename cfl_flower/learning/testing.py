"""Predictions and tests with torch, what a test counts, and the measures from counts.

Counts add up over blocks, clients and clusters, so that a measure of all clients is
that of their samples together. They are one vector of float64: for each of L labels
its samples, the answers that name it, and those of them that are right; for each of
`BINS` the sum of the confidences in it, and the right answers; and for two labels, how
many samples of each have their score in each of `SCORES` bins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.special import entr

from cfl_flower.models import FlatModel
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
    parts = np.split(counts, ends, axis=-1)
    before = counts.shape[:-1]
    of_labels, of_bins, of_scores = parts
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


BLOCK = 128
"""Samples in a forward pass outside of SGD; fixed, for equal sums on all workers.

With more, a convolution's activations outgrow the cache: 512 took twice the time.
"""

GPU_BLOCK = 2**12
"""The same on a GPU, where a launch takes longer than 128 small samples."""

GPU_FLOATS = 2**22
"""Numbers in the inputs of such a block, unless those of `BLOCK` are more."""


def block_size(x: Tensor) -> int:
    """Return how many of some samples, (n, ...), are in a forward pass."""
    if x.device.type == "cpu":
        return BLOCK
    floats = max(1, x.shape[1:].numel())
    return max(BLOCK, min(GPU_BLOCK, GPU_FLOATS // floats))


def blocks_of(x: Tensor) -> tuple[Tensor, ...]:
    """Return samples, (n, ...), in the blocks of forward passes."""
    return torch.split(x, block_size(x))


Note = Callable[[Tensor, Tensor], None]
"""Takes the logits of some tested samples, (n, L), and their labels, (n,)."""


def switch_mode(model: FlatModel, training: bool) -> None:
    """Switch between training and evaluation mode."""
    # Setting the mode of all modules costs as much as a small model's forward pass.
    if model.module.training is not training:
        model.module.train(training)


@torch.no_grad()
def predictions(model: FlatModel, x: Tensor) -> Tensor:
    """Return the most probable label of each sample, shape (n,)."""
    return logits(model, x).argmax(1)


@torch.no_grad()
def sample_losses(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of each sample in evaluation mode, shape (n,)."""
    return cross_entropy(logits(model, x), y, reduction="none")


@torch.no_grad()
def logits(model: FlatModel, x: Tensor) -> Tensor:
    """Return the outputs for each sample in evaluation mode, shape (n, L)."""
    switch_mode(model, training=False)
    model.passes += len(x)
    return torch.cat([model.module(block) for block in blocks_of(x)])


@torch.no_grad()
def information(model: FlatModel, x: Tensor) -> float:
    """Return what predictions tell of their inputs, (n, ...), in nats; no labels.

    The entropy of the mean prediction less the mean entropy of predictions (Bridle et
    al., NIPS 1991): a model that fits is sure of each sample, but not of one label.
    """
    shares = logits(model, x).double().softmax(1)
    of_mean = entr(shares.mean(0)).sum()
    mean = entr(shares).sum(1).mean()
    return float(of_mean - mean)


def evaluate(
    model: FlatModel,
    x: Tensor,
    y: Tensor,
    spread: Callable[..., Iterable[Any]] = map,
    note: Note | None = None,
    shift: FloatArray | None = None,
) -> tuple[float, int]:
    """Return the mean cross-entropy and the number of correct predictions.

    Parameters
    ----------
    model : FlatModel
        With the weights to test.
    x, y : Tensor
        Inputs and labels, shapes (n, ...) and (n,).
    spread : callable
        Maps over blocks; a thread pool's ``map`` gives the same bits.
    note : callable, optional
        Is given the logits and labels of each block.
    shift : ndarray, optional
        What is added to the logits of each sample, shape (L,), float32.

    Returns
    -------
    float, int

    Raises
    ------
    ValueError
        If there are no samples.
    """
    if y.shape[0] == 0:
        raise ValueError("the client has no test samples in this round")
    switch_mode(model, training=False)
    model.passes += len(y)
    x_blocks = blocks_of(x)
    y_blocks = torch.split(y, block_size(x))
    added = None if shift is None else torch.from_numpy(shift).to(x.device)
    test = partial(_test_block, model.module, note, added)
    tested = spread(test, x_blocks, y_blocks)
    loss = 0.0
    correct = 0
    for y_block, (block_loss, block_correct) in zip(y_blocks, tested, strict=True):
        loss += block_loss * (len(y_block) / len(y))
        correct += block_correct
    return loss, correct


@torch.no_grad()
def _test_block(
    module: nn.Module, note: Note | None, shift: Tensor | None, x: Tensor, y: Tensor
) -> tuple[float, int]:
    logits = module(x)
    if shift is not None:
        logits = logits + shift
    if note is not None:
        note(logits, y)
    return float(cross_entropy(logits, y)), int((logits.argmax(1) == y).sum())

"""Measures of a round: clients' tests, distances of models, agreement by class."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from cfl_flower.learning.outcomes import COUNTED, measure_outcomes
from cfl_flower.privacy.clipping import capped_counts
from cfl_flower.runs.record import ClientRow, RoundRecord
from cfl_flower.types import (
    CLASS_COUNTS,
    OUTCOMES,
    ClientId,
    FloatArray,
    IntArray,
    Json,
    Result,
)

FURTHER = {"validation": "validation_accuracy", "unlabelled": "accuracy_unlabelled"}
"""Further tests that clients may report, and the measures of a round that they give."""


def note_tests(
    record: RoundRecord,
    tested: Sequence[Result],
    clusters: IntArray,
    malicious: Collection[ClientId] = (),
    cap: float | None = None,
) -> list[ClientRow]:
    """Record the accuracies of a round; nothing without tested clients.

    In means over all samples a client counts for at most ``cap`` times the median one.

    The n results have the metric ``correct``, and ``own_correct`` of ``own_tested`` if
    the test is on more than a client's own samples, ``validation_correct`` of
    ``validation_tested`` if samples are held out for that, and ``unlabelled_correct``
    of ``unlabelled_tested`` if test samples select a model without labels; their
    clusters have shape (n,). The accuracy of clients that are not malicious is
    recorded, too.
    """
    if not tested:
        return []
    correct = np.array([result.metrics["correct"] for result in tested], float)
    counts = np.array([result.num_examples for result in tested], float)
    losses = np.array([result.loss for result in tested], float)
    accuracies = correct / counts
    # What a client says of its tests is no more certain than what it says of training.
    weights = capped_counts(counts[:, None], cap)[:, 0]
    if capped := np.flatnonzero(weights < counts).tolist():
        record.measures["capped_tests"] = [tested[row].client for row in capped]
    record.accuracy = pooled(correct, counts, cap)
    record.accuracy_mean = float(accuracies.mean())
    record.loss = float(losses @ weights / weights.sum())
    if malicious:
        honest = np.array([result.client not in malicious for result in tested])
        own = pooled(correct[honest], counts[honest], cap) if honest.any() else None
        record.measures["accuracy_honest"] = own
    for name, key in FURTHER.items():
        if any(result.metrics.get(f"{name}_tested") for result in tested):
            right, held = (
                np.array([int(each.metrics.get(f"{name}_{of}", 0)) for each in tested])
                for of in ("correct", "tested")
            )
            record.measures[key] = pooled(right, held, cap)
    personalised = [_share(result, "own") for result in tested]
    if known := [share for share in personalised if share is not None]:
        record.measures["personalised"] = float(np.mean(known))
    numbers = zip(clusters.tolist(), accuracies.tolist(), strict=True)
    rows = [
        ClientRow(record.round, result.client, *pair, result.num_examples, share)
        for result, pair, share in zip(tested, numbers, personalised, strict=True)
    ]
    for row, result in zip(rows, tested, strict=True):
        if (share := _share(result, "unlabelled")) is not None:
            row.measures["accuracy_unlabelled"] = share
    return rows


def note_measures(
    record: RoundRecord,
    tested: Sequence[Result],
    rows: Sequence[ClientRow],
    wanted: Collection[str],
    classes: int,
    cap: float | None = None,
) -> list[ClientRow]:
    """Note the measures that are wanted beside the accuracy; return rows with them.

    Of the samples of all clients together that send counts, up to the ``cap`` of
    `note_tests`, and in a client's row of its own. None is what has no value, as the
    AUC of a client with one label.
    """
    names = [name for name in COUNTED if name in wanted]
    record.measures |= dict.fromkeys(names)
    if "worst_tenth" in wanted:
        record.measures["worst_tenth"] = worst_tenth([row.accuracy for row in rows])
    metrics = [result.telemetry.get(OUTCOMES) for result in tested]
    # Devices without rounds send the tests of their uploads, without counts, and a
    # device's own rule leaves them out.
    pairs = enumerate(metrics)
    sent = {i: each for i, each in pairs if isinstance(each, bytes) and each}
    found = list(rows)
    if not names or not sent:
        return found
    counts = np.array([np.frombuffer(each, "<f8") for each in sent.values()])
    sizes = np.array([[tested[i].num_examples] for i in sent], float)
    factors = capped_counts(sizes, cap) / sizes
    together = measure_outcomes((factors * counts).sum(axis=0), classes)
    # Numbers of samples, of which the cap leaves fractions.
    together["per_class"] = measure_outcomes(counts.sum(axis=0), classes)["per_class"]
    own = measure_outcomes(counts, classes)
    record.measures |= {name: _known(together[name]) for name in names}
    for place, i in enumerate(sent):
        more = dict(found[i].measures)
        more |= {name: _known(own[name][place]) for name in names}
        found[i] = replace(found[i], measures=more)
    return found


def worst_tenth(accuracies: Sequence[float]) -> float | None:
    """Return the mean accuracy of the tenth of the clients that have the lowest.

    Rounded up, so at least one; None without any.

    Examples
    --------
    >>> worst_tenth([0.9, 0.5, 0.7] + 9 * [1.0])
    0.6
    """
    lowest = sorted(accuracies)[: math.ceil(len(accuracies) / 10)]
    return fmean(lowest) if lowest else None


def _known(measured: FloatArray) -> Json:
    """Return a measure as JSON has it, None if it has no value."""
    if measured.ndim:
        rows = measured.astype(int).tolist()
        return [dict(zip(CLASS_COUNTS, row, strict=True)) for row in rows]
    return float(measured) if math.isfinite(measured) else None


def pooled(right: FloatArray, counts: FloatArray, cap: float | None) -> float:
    """Return the accuracy over the samples of all clients, who count up to the cap."""
    told = counts > 0
    weights = capped_counts(counts[told, None].astype(float), cap)[:, 0]
    return float((right[told] * (weights / counts[told])).sum() / weights.sum())


def _share(result: Result, name: str) -> float | None:
    """Return the accuracy of a client's further test, None if there was none."""
    tested = result.metrics.get(f"{name}_tested")
    return int(result.metrics[f"{name}_correct"]) / int(tested) if tested else None


def adjusted_rand_index(truth: IntArray, clusters: IntArray) -> float:
    """Return the adjusted Rand index of two clusterings of the same n, of shape (n,).

    1 if they agree, about 0 if they are unrelated (Hubert and Arabie, 1985).
    """
    # scikit-learn's function, to the bit: its import took a second of the first round.
    _, rows, row_sizes = np.unique(truth, return_inverse=True, return_counts=True)
    _, columns, column_sizes = np.unique(
        clusters, return_inverse=True, return_counts=True
    )
    _, shared_sizes = np.unique(rows * len(clusters) + columns, return_counts=True)
    # Python's integers, which do not overflow.
    shared = int(np.square(shared_sizes).sum())
    together = shared - len(truth)
    truth_only = int(np.square(row_sizes).sum()) - shared
    clusters_only = int(np.square(column_sizes).sum()) - shared
    apart = len(truth) ** 2 - shared - truth_only - clusters_only
    if truth_only == 0 and clusters_only == 0:
        return 1.0
    agreement = 2.0 * (together * apart - truth_only * clusters_only)
    most = (together + truth_only) * (truth_only + apart)
    most += (together + clusters_only) * (clusters_only + apart)
    return agreement / most


def class_scores(truth: IntArray, clusters: IntArray) -> list[float | None]:
    """Return the adjusted Rand index of each class, over clients with samples of it.

    ``truth`` and ``clusters`` have shape (m, L); clusters are -1 where a client has no
    samples of a class. None for a class without samples.
    """
    scores: list[float | None] = []
    for own, found in zip(truth.T, clusters.T, strict=True):
        held = found >= 0
        score = adjusted_rand_index(own[held], found[held]) if held.any() else None
        scores.append(score)
    return scores

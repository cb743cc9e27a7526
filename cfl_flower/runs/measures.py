"""Measures of a round: clients' tests, distances of models, agreement by class."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from cfl_flower.runs.record import ClientRow, RoundRecord
from cfl_flower.types import ClientId, IntArray, Result, Vector


def note_tests(
    record: RoundRecord,
    tested: Sequence[Result],
    clusters: IntArray,
    malicious: Collection[ClientId] = (),
) -> list[ClientRow]:
    """Record the accuracies of a round; nothing without tested clients.

    The n results have the metric ``correct``, and ``own_correct`` of ``own_tested`` if
    the test is on more than a client's own samples; their clusters have shape (n,). The
    accuracy of clients that are not malicious is recorded, too.
    """
    if not tested:
        return []
    correct = np.array([result.metrics["correct"] for result in tested], float)
    counts = np.array([result.num_examples for result in tested], float)
    losses = np.array([result.loss for result in tested], float)
    accuracies = correct / counts
    record.accuracy = float(correct.sum() / counts.sum())
    record.accuracy_mean = float(accuracies.mean())
    record.loss = float(losses @ counts / counts.sum())
    if malicious:
        honest = np.array([result.client not in malicious for result in tested])
        total = float(counts[honest].sum())
        share = float(correct[honest].sum()) / total if total else None
        record.measures["accuracy_honest"] = share
    personalised = [_personalised(result) for result in tested]
    if known := [share for share in personalised if share is not None]:
        record.measures["personalised"] = float(np.mean(known))
    numbers = zip(clusters.tolist(), accuracies.tolist(), strict=True)
    return [
        ClientRow(record.round, result.client, *pair, result.num_examples, share)
        for result, pair, share in zip(tested, numbers, personalised, strict=True)
    ]


def _personalised(result: Result) -> float | None:
    """Return the accuracy on a client's own samples if the test is on more."""
    tested = result.metrics.get("own_tested")
    return int(result.metrics["own_correct"]) / int(tested) if tested else None


def class_scores(truth: IntArray, clusters: IntArray) -> list[float | None]:
    """Return the adjusted Rand index of each class, over clients with samples of it.

    ``truth`` and ``clusters`` have shape (m, L). None for a class without samples.
    """
    from sklearn.metrics import adjusted_rand_score

    scores: list[float | None] = []
    for label in range(truth.shape[1]):
        holders = clusters[:, label] >= 0
        if not holders.any():
            scores.append(None)
            continue
        score = adjusted_rand_score(truth[holders, label], clusters[holders, label])
        scores.append(float(score))
    return scores


def note_discrepancies(
    record: RoundRecord,
    results: Sequence[Result],
    clusters: IntArray,
    models: Sequence[Vector],
) -> None:
    """Note how far m participants' models are from their clusters' new ones.

    The mean Euclidean distance over all (FlexCFL, eq. 3), and over each of the K
    clusters; ``clusters`` has shape (m,).
    """
    pairs = zip(results, clusters.tolist(), strict=True)
    gaps = np.array([np.linalg.norm(r.arrays[0] - models[k]) for r, k in pairs], float)
    measures = record.measures
    measures["discrepancy"] = float(np.mean(gaps)) if len(gaps) else None
    measures["discrepancies"] = [
        float(gaps[clusters == cluster].mean()) if cluster in clusters else None
        for cluster in range(len(models))
    ]


def note_class_agreement(
    record: RoundRecord, meanings: IntArray, clients: IntArray, clusters: IntArray
) -> None:
    """Note how well clusters fit what a class means, class by class.

    ``meanings``, equal for clients that mean the same by a class, have shape (n, L);
    ``clients`` are the m of the n that were clustered. Clusters have shape (m, L), and
    are -1 where a client has no samples of a class.
    """
    record.measures["class_meanings"] = (meanings.max(axis=0) + 1).tolist()
    record.measures["class_ari"] = class_scores(meanings[clients], clusters)

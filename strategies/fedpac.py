"""FedPAC: aligned features, and classifiers combined for each client.

Xu et al., "Personalized Federated Learning with Feature Alignment and Classifier
Collaboration" (ICLR 2023; Algorithm 1, eq. 8 to 12). As FedRep, with a squared distance
to global anchors in the extractor's loss. The server gives each participant its own
mixture of the participants' classifiers, whose weights minimise an estimate of its test
loss: variance plus bias, from statistics of the representations.

Server keeps: the extractor and the anchors. Leaves the device: the extractor, the
classifier, the anchors, and from before training the variance (1 float) and each
class's share times its mean representation (L * D floats); label counts (L floats).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.errors import InvalidResultError
from cfl_flower.learning.aggregation import mix_models
from cfl_flower.learning.anchors import no_anchors, parse_counts, presence_config
from cfl_flower.privacy.clipping import capped_lengths
from cfl_flower.seeding import one_thread
from cfl_flower.settings import NonNegative, settings
from cfl_flower.types import FloatArray, Plan, Result
from strategies.families.decoupled import (
    AnchorState,
    DecoupledSettings,
    DecoupledStrategy,
)

SMALLEST = 1e-3
"""Weight of another's classifier below which it is left out."""


@settings("strategy")
class FedPACSettings(DecoupledSettings):
    """FedPAC's settings."""

    client: str = "clients.fedpac.FedPACClient"
    alignment_weight: NonNegative = 1.0
    """lambda, weight of the squared distance to the anchors."""


def simplex_minimum(matrix: FloatArray) -> FloatArray:
    """Return the a >= 0 with sum 1 that minimises a^T P a, P symmetric of shape (m, m).

    With P = R^T R, non-negative least squares gives the a >= 0 that minimises
    |R a|^2 + (sum a - 1)^2. For a = s u with sum u = 1 and q = u^T P u the best s
    leaves q / (1 + q), which grows with q: the best u is the minimum on the simplex.
    Negative eigenvalues count as 0.

    Examples
    --------
    >>> simplex_minimum(np.diag([1.0, 3.0]))
    array([0.75, 0.25])
    """
    from scipy.optimize import nnls

    count = len(matrix)
    scale = np.trace(matrix) / count
    if not scale > 0:
        return np.full(count, 1 / count)
    with one_thread():
        values, vectors = np.linalg.eigh(matrix / scale)
        root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
        system = np.vstack([root, np.ones(count)])
        found, _ = nnls(system, np.eye(count + 1)[count], maxiter=30 * count)
    return found / found.sum()


def combine(variances: FloatArray, means: FloatArray) -> FloatArray:
    """Return the weights of all classifiers in each client's, (m, m): eq. 10 and 12.

    Row i minimises sum_j a_j^2 v_j + |sum_j a_j (h_i - h_j)|^2 and sums to 1.
    ``variances`` is v, (m,); ``means`` is h, (m, k), each class's share times its mean.
    """
    with one_thread():
        gram = means @ means.T
    rows = []
    for own in range(len(means)):
        cross = gram[own]
        # <h_i - h_j, h_i - h_l> for all pairs j, l.
        bias = gram[own, own] - cross[:, None] - cross[None] + gram
        # Eq. 10: a^T (diag(v) + bias) a on the simplex.
        weights = simplex_minimum(np.diag(variances) + bias)
        weights = np.where(weights < SMALLEST, 0, weights)
        rows.append(weights / weights.sum())
    return np.stack(rows)


class FeatureReport(NamedTuple):
    """A participant's report: its label counts, (L,), and V of eq. 9."""

    counts: FloatArray
    variance: float


class FedPAC(DecoupledStrategy):
    """Algorithm 1, the server's part."""

    Settings = FedPACSettings
    State = AnchorState

    def initial_state(self) -> Any:
        """Return the state before any client is known: no anchors yet."""
        return replace(super().initial_state(), anchors=no_anchors(self.split))

    def read_result(self, phase: str, result: Result) -> Result:
        """Read the label counts of a training result, and its variance."""
        if phase != "train":
            return result
        counts = parse_counts(result.metrics.get("classes"), self.split.classes)
        variance = result.metrics.get("variance")
        if not isinstance(variance, int | float) or variance < 0:
            detail = f"variance={variance!r}, not a number of at least 0"
            raise InvalidResultError("representation", detail)
        return replace(result, report=FeatureReport(counts, float(variance)))

    def plan_train(self, server_round: int) -> Plan:
        """Send the extractor and the anchors to the participants."""
        points = self.state.anchors.points.ravel()
        config = presence_config(self.state.anchors)
        sent = [self.extractor, points]
        plan = self.run.participants.send(server_round, sent, **config)
        return replace(plan, reply=(*self.split.lengths, len(points), len(points)))

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average extractors and anchors, and combine the classifiers."""
        super().absorb_train(server_round, results)
        _, classifiers, points, means = zip(*(r.arrays for r in results), strict=True)
        reports = [result.report for result in results]
        counts = np.stack([each.counts for each in reports])
        cap = self.settings.weight_cap
        self.state.average(points, counts, cap)
        variances = np.array([each.variance for each in reports])
        if cap is not None:
            means = tuple(capped_lengths(means))
        weights = combine(variances, np.stack(means).astype(float))
        # Eq. 12: each client's mixture of all classifiers.
        mixed = mix_models(list(classifiers), weights)
        self.give_back(results, [[classifier] for classifier in mixed])

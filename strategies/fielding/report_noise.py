"""Noise on reported label histograms: differential privacy of single samples.

Neighbouring data sets are those of one client in which one sample has another label;
their number of samples n, which a client reports, too, is the same. So two label counts
differ by 1 each: the counts have L1 sensitivity 2, the normalised histogram 2 / n. The
noise is added to the counts; clipping at 0 and normalising afterwards do not use the
data again.

One report is epsilon-differentially private in the label of any one sample.
Limits of this guarantee:

* Reports compose. A client whose labels changed k times has sent k + 1 histograms: at
  worst (k + 1) epsilon for a sample that was in all of them, which `epsilon_spent`
  counts. The same counts get the same noise, so that a repeated report reveals nothing
  new, and a client whose data did not change is not taken for a drifted one.
* A report reveals that the client's labels changed, and n their number.
* A trained model reveals information about its samples, too; only the histogram is
  protected.
* Single samples are protected, not the client as a whole, but by `ClientNoise`.
* Floating-point noise is not exactly continuous (Mironov, CCS 2012).
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import numpy as np
from numpy.random import Generator

from cfl_flower.settings import Magnitude, settings
from cfl_flower.types import FloatArray, IntArray, Vector

L1_SENSITIVITY = 2.0


@settings("strategy.privacy")
class NoNoise:
    """Reports are sent as they are."""

    name: ClassVar[str] = "none"
    on: ClassVar[bool] = False
    whole_client: ClassVar[bool] = False
    """Whether it hides all labels of a client together, rather than one of them."""

    def variances(self, counts: IntArray) -> FloatArray:
        """Return the variance of the noise on label counts of clients, both (n,)."""
        return np.zeros(len(counts))

    def spent(self, reports: IntArray) -> dict[str, float]:
        """Return the measures of the privacy that was lost."""
        return {}


@settings("strategy.privacy")
class LaplaceNoise(NoNoise):
    """Laplace noise on the label counts behind a histogram, on the client."""

    name: ClassVar[str] = "laplace"
    on: ClassVar[bool] = True

    epsilon: Magnitude = 1.0
    """Privacy of one report, for one sample's label."""

    @property
    def scale(self) -> float:
        """Laplace's b, in samples."""
        return L1_SENSITIVITY / self.epsilon

    def variances(self, counts: IntArray) -> FloatArray:
        """Return the variance of the noise on label counts of clients, both (n,)."""
        return np.full(len(counts), self.scale**2 * 2)

    def spent(self, reports: IntArray) -> dict[str, float]:
        """Return the measures of the privacy lost by the client that reported most.

        ``reports``, the number of each client's, have shape (n,): they compose.
        """
        return {"epsilon_spent": int(reports.max(initial=0)) * self.epsilon}

    def protect(self, histogram: Vector, count: int, rng: Generator) -> Vector:
        """Return a histogram with noise on the ``count`` samples behind it, shape (L,).

        A distribution; uniform if no noisy count is above 0.
        """
        noise = rng.laplace(0.0, self.scale, len(histogram))
        return as_distribution(histogram * float(count) + noise)


@settings("strategy.privacy")
class ClientNoise(NoNoise):
    """Gaussian noise that hides all labels of a client together, for ``privacy=``.

    Its length in L2 is at most 1, so that leaving a client out changes its report by at
    most 1. ``state.privacy`` keeps account, together with the models.
    """

    name: ClassVar[str] = "client"
    on: ClassVar[bool] = True
    whole_client: ClassVar[bool] = True

    noise_multiplier: Magnitude = 1.0
    """Standard deviation of the noise on each label's share; follows
    `privacy.report_noise`."""

    def variances(self, counts: IntArray) -> FloatArray:
        """Return the variance of the noise on label counts of clients, both (n,)."""
        return (self.noise_multiplier * counts) ** 2.0

    def protect(self, histogram: Vector, count: int, rng: Generator) -> Vector:
        """Return a histogram with noise on its shares, a distribution of shape (L,)."""
        noise = rng.normal(0.0, self.noise_multiplier, len(histogram))
        return as_distribution(histogram + noise)


Privacy: TypeAlias = NoNoise | LaplaceNoise | ClientNoise


def as_distribution(noisy: FloatArray) -> Vector:
    """Return the positive part of noisy counts or shares, (L,), with the sum 1.

    Uniform if there is none.

    Examples
    --------
    >>> as_distribution(np.array([3.0, -1.0, 1.0]))
    array([0.75, 0.  , 0.25], dtype=float32)
    """
    left = np.maximum(noisy, 0.0)
    total = left.sum()
    shares = left / total if total > 0 else np.full(len(left), 1 / len(left))
    return shares.astype(np.float32)

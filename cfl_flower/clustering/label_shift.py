"""A client's test for a shift of its label distribution."""

from __future__ import annotations

from typing import Literal

import numpy as np

from cfl_flower.settings import NonNegative, settings
from cfl_flower.types import IntArray


@settings("strategy.shift")
class ShiftTest:
    """FlexCFL's test on label counts: eq. 9."""

    threshold: NonNegative = 0.2
    """Share of the samples whose change is a shift; 0.2 in eq. 9."""
    metric: Literal["labels", "reference"] = "labels"
    """Measure of the change. `labels`: (1/L) sum_l |c_l - c'_l|. `reference`: the
    authors' code, the Wasserstein distance of the counts taken as values, which sees
    sizes and the sorted profile only: other labels in the same numbers are no change to
    it."""

    def detects(self, current: IntArray, before: IntArray) -> bool:
        """Return whether label counts have changed by more than tau.

        tau = threshold * n / L, with the n samples of ``before`` (eq. 9). Both arrays
        have shape (L,).

        Examples
        --------
        >>> test, before = ShiftTest(), np.array([50, 50, 0, 0])
        >>> test.detects(np.array([40, 50, 10, 0]), before)
        False
        >>> test.detects(np.array([39, 50, 11, 0]), before)
        True
        """
        from scipy.stats import wasserstein_distance

        if self.metric == "reference":
            change = float(wasserstein_distance(current, before))
        else:
            change = float(np.abs(current - before).mean())
        # FlexCFL, eq. 9.
        return bool(change > self.threshold * before.sum() / len(before))

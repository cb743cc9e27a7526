"""By how much one method is ahead of another, and whether seeds carry it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

ERRORS = 2.0
"""Standard errors that a lead must exceed."""


@dataclass(frozen=True)
class Lead:
    """The mean difference of two methods over the seeds that both have.

    A seed fixes the data, the participants and the initial model of all methods, so the
    difference of each seed counts, not the spread of each method.
    """

    mean: float
    """In the unit of what is compared."""
    error: float | None
    """The standard error of the mean; None with a single seed."""

    @property
    def holds(self) -> bool:
        """Whether it is larger than two standard errors; never with a single seed."""
        return self.error is not None and abs(self.mean) > ERRORS * self.error

    def in_points(self) -> str:
        """Write a difference of shares in points, with what it is worth.

        Examples
        --------
        >>> Lead(0.021, 0.004).in_points(), Lead(0.004, 0.004).in_points()
        ('+2.1 ± 0.4', '+0.4 ± 0.4, no lead')
        >>> Lead(-0.03, None).in_points()
        '-3.0, one seed'
        """
        mean = f"{100 * self.mean:+.1f}"
        if self.error is None:
            return f"{mean}, one seed"
        worth = "" if self.holds else ", no lead"
        return f"{mean} ± {100 * self.error:.1f}{worth}"


def find_lead(pairs: Iterable[tuple[float | None, float | None]]) -> Lead | None:
    """Return the lead of the first of each pair, which are of one seed.

    None if no seed has both values.

    Examples
    --------
    >>> find_lead([(0.9, 0.8), (0.8, 0.8), (None, 0.7)])
    Lead(mean=0.05, error=0.05)
    """
    gaps = [
        one - other for one, other in pairs if one is not None and other is not None
    ]
    if not gaps:
        return None
    error = stdev(gaps) / sqrt(len(gaps)) if len(gaps) > 1 else None
    return Lead(round(fmean(gaps), 12), None if error is None else round(error, 12))

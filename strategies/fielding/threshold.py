"""The threshold of re-clustering, fixed or learned: `strategy/threshold_learning`.

Li et al., "Fielding: Clustered Federated Learning with Data Drift", Appendix F.1: "in
the early rounds, we explore various thresholds and select those yielding the best
accuracy". The paper does not describe how. Here a threshold is tried on a whole drift
and scored by the mean accuracy of some rounds after it, less that of the round before
it. Accuracy rises over a run, whatever the threshold. So the thresholds take turns,
forth and back again, and one replaces the configured one only if Dunnett's test, which
compares many with one, finds its gain larger than the spread between the drifts of one
threshold.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeAlias

import numpy as np
from numpy.random import Generator
from pydantic import Field

from cfl_flower.runs.record import RoundRecord
from cfl_flower.settings import Count, settings
from cfl_flower.types import FloatArray

THRESHOLDS = (0.0, 1 / 6, 1 / 3, 1 / 2, 2 / 3)
"""The fractions of theta in Appendix F.1."""

SIGNIFICANCE = 0.05
"""Probability of replacing a configured threshold that is no worse."""

LEAST_GAIN = 0.001
"""Accuracy below which a difference is none: a tenth of a point."""


@dataclass(frozen=True)
class Trials:
    """The results of all trials of thresholds so far."""

    scores: FloatArray = field(default_factory=lambda: np.zeros(0))
    """The change of accuracy at the drift of each trial, in order, shape (t,)."""
    before: float | None = None
    """The accuracy before the drift of the open trial; None if none is open."""
    after: FloatArray = field(default_factory=lambda: np.zeros(0))
    """The accuracies since that drift, shape (m,)."""
    latest: float | None = None
    """The accuracy of the last test."""
    learned: float | None = None
    """The chosen threshold, as a fraction of theta."""

    def tested(self, accuracy: float, rounds: int) -> Trials:
        """Return the trials after a test; an open trial ends after some rounds."""
        if self.before is None:
            return replace(self, latest=accuracy)
        after = np.append(self.after, accuracy)
        if len(after) < rounds:
            return replace(self, after=after, latest=accuracy)
        score = float(after.mean()) - self.before
        # While a trial is open no threshold is chosen yet.
        return Trials(np.append(self.scores, score), latest=accuracy)

    def drifted(self) -> Trials:
        """Return the trials after a drift, which begins a trial if none is open.

        A drift during a trial belongs to it: the same threshold decides.
        """
        if self.before is not None or self.latest is None:
            return self
        return replace(self, before=self.latest)


@settings("strategy.threshold_learning")
class FixedThreshold:
    """The configured threshold stays."""

    def in_force(self, configured: float, trials: Trials) -> float:
        """Return the threshold that decides now, as a fraction of theta."""
        return configured


@settings("strategy.threshold_learning")
class LearnedThreshold:
    """Five thresholds and the configured one are tried on drifts, and one is chosen."""

    rounds: Count = 5
    """Tested rounds after a drift by which a threshold is judged."""
    events: Annotated[int, Field(ge=2)] = 2
    """Drifts on which each threshold is tried; a single one is not enough to exclude
    chance."""

    def in_force(self, configured: float, trials: Trials) -> float:
        """Return the threshold on trial, or else the learned or configured one."""
        if trials.before is not None:
            tried = candidates(configured)
            return tried[turn(len(trials.scores), len(tried))]
        return configured if trials.learned is None else trials.learned

    def after_round(
        self,
        trials: Trials,
        record: RoundRecord,
        drifted: bool,
        configured: float,
        rng: Generator,
    ) -> Trials:
        """Return the trials after a round; the best threshold is chosen after the last.

        A drift reported at the end of the round begins a new trial.
        """
        if record.accuracy is not None:
            trials = trials.tested(record.accuracy, self.rounds)
        tried = candidates(configured)
        if trials.learned is None and len(trials.scores) >= len(tried) * self.events:
            place = tried.index(configured)
            best = best_candidate(trials.scores, len(tried), place, rng)
            trials = replace(trials, learned=tried[best])
        return trials.drifted() if drifted and trials.learned is None else trials


ThresholdLearning: TypeAlias = FixedThreshold | LearnedThreshold


def candidates(configured: float) -> tuple[float, ...]:
    """Return the thresholds to try: Appendix F.1's, and the configured one.

    Examples
    --------
    >>> candidates(0.3333) == (0.0, 1 / 6, 0.3333, 1 / 2, 2 / 3)
    True
    """
    others = [t for t in THRESHOLDS if not math.isclose(t, configured, abs_tol=1e-3)]
    return tuple(sorted([*others, configured]))


def turn(trial: int, count: int) -> int:
    """Return the candidate of a trial; candidates take turns, forth and back again.

    Examples
    --------
    >>> [turn(trial, 3) for trial in range(8)]
    [0, 1, 2, 2, 1, 0, 0, 1]
    """
    time, place = divmod(trial, count)
    return count - 1 - place if time % 2 else place


def best_candidate(
    scores: FloatArray, count: int, configured: int, rng: Generator
) -> int:
    """Return the best candidate, or the configured one if none is clearly better.

    ``scores`` are those of r > 1 trials of each, (r * count,), in the order of `turn`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> best_candidate(np.array([0.1, 0.5, 0.6, 0.1, 0.1, 0.5]), 3, 0, rng)
    0
    >>> best_candidate(np.array([0.1, 0.6, 0.12, 0.11, 0.61, 0.1]), 3, 0, rng)
    1
    """
    from scipy.stats import dunnett

    numbers = np.array([turn(trial, count) for trial in range(len(scores))])
    samples = [scores[numbers == number] for number in range(count)]
    means = np.array([sample.mean() for sample in samples])
    best = int(means.argmax())
    if means[best] < means[configured] + LEAST_GAIN:
        return configured
    if max(float(np.ptp(sample)) for sample in samples) < LEAST_GAIN:
        # No threshold has trials that differ: a test would have no variance.
        return best
    control = samples.pop(configured)
    with warnings.catch_warnings():
        # SciPy warns if the scores of some thresholds are constant.
        warnings.simplefilter("ignore", RuntimeWarning)
        found = dunnett(*samples, control=control, alternative="greater", rng=rng)
    # The p-values leave out the control.
    place = best - 1 if best > configured else best
    chance = found.pvalue[place]
    return best if chance < SIGNIFICANCE else configured

"""A learned threshold follows from drifts, not from when it is tried."""

import numpy as np
import pytest

from strategies.fielding.threshold import Trials, best_candidate, candidates, turn

COUNT = len(candidates(1 / 3))
CONFIGURED = candidates(1 / 3).index(1 / 3)


def curve(round: int, every: int, rng: np.random.Generator) -> float:
    """Return an accuracy that rises, falls at every drift, and knows no threshold."""
    rise = 0.9 - 0.6 * np.exp(-round / 30)
    since = (round - 1) % every
    fall = 0.3 * np.exp(-since / 3) if round > every else 0.0
    return float(rise - fall + rng.normal(0, 0.004))


@pytest.mark.parametrize("rounds", [3, 5, 10])
@pytest.mark.parametrize("every", [7, 10])
def test_a_curve_independent_of_thresholds_keeps_the_configured_one(every, rounds):
    kept = []
    for seed in range(20):
        rng, trials, round = np.random.default_rng(seed), Trials(), 0
        while len(trials.scores) < 2 * COUNT:
            round += 1
            trials = trials.tested(curve(round, every, rng), rounds)
            # The data of the next round are others.
            if round % every == 0:
                trials = trials.drifted()
        found = best_candidate(trials.scores, COUNT, CONFIGURED, rng)
        kept.append(found == CONFIGURED)
    assert np.mean(kept) >= 0.9


def test_a_clearly_better_threshold_is_found():
    rng = np.random.default_rng(0)
    scores = rng.normal(-0.3, 0.01, 2 * COUNT)
    scores[[turn(trial, COUNT) == 4 for trial in range(2 * COUNT)]] += 0.2
    assert best_candidate(scores, COUNT, CONFIGURED, rng) == 4
    # Without any difference between drifts there is nothing that it could be.
    flat = np.zeros(2 * COUNT)
    assert best_candidate(flat, COUNT, CONFIGURED, rng) == CONFIGURED
    flat[[turn(trial, COUNT) == 0 for trial in range(2 * COUNT)]] = 0.1
    assert best_candidate(flat, COUNT, CONFIGURED, rng) == 0


def test_a_trial_is_a_drift_and_so_many_tests_after_it():
    trials = Trials().drifted()
    assert trials.before is None  # no accuracy to compare with yet
    for accuracy in (0.2, 0.5, 0.8):
        trials = trials.tested(accuracy, 2)
    assert len(trials.scores) == 0  # no drift, no trial
    trials = trials.drifted().tested(0.4, 2).drifted()
    assert trials.before == 0.8  # a drift within a trial belongs to it
    trials = trials.tested(0.6, 2)
    assert trials.scores == pytest.approx([-0.3])
    assert trials.before is None
    assert trials.latest == 0.6

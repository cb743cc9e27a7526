import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.learning.selection import (
    History,
    Known,
    NearestToCentre,
    Oort,
    RandomSelection,
    share_participants,
)


def share(participants: int, sizes: list[int], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return share_participants(participants, np.array(sizes), rng)


SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=8)


@given(st.integers(1, 60), SIZES)
def test_shares_stay_within_the_clusters_and_within_m(m, sizes):
    shares = share(m, sizes)
    assert (shares <= sizes).all()
    assert (shares >= 0).all()
    assert shares.sum() <= m
    full = -(-m // max(1, np.count_nonzero(sizes)))
    if all(size == 0 or size >= full for size in sizes) and any(sizes):
        assert shares.sum() == m


def test_random_selection_draws_without_replacement_in_ascending_order():
    members = np.array([3, 5, 8, 9, 20])
    chosen = RandomSelection().choose(members, 4, np.random.default_rng(0), known())
    assert len(set(chosen.tolist())) == 4
    assert set(chosen.tolist()) <= set(members.tolist())
    assert chosen.tolist() == sorted(chosen.tolist())


def test_ties_among_many_clusters_go_to_the_lowest_ids():
    # Above 16 entries an unstable sort would shuffle equal sizes.
    shares = share(45, [3, 4] * 20)
    assert np.flatnonzero(shares == 2).tolist() == [1, 3, 5, 7, 9]


def test_every_cluster_is_drawn_if_participants_are_fewer_than_clusters():
    sizes = [5, 0, 5, 9]
    drawn = [share(2, sizes, seed).tolist() for seed in range(300)]
    assert {sum(shares) for shares in drawn} == {2}
    # Expected 200 each, with a standard deviation of 8; the empty one has none.
    assert np.sum(drawn, axis=0) == pytest.approx([200, 0, 200, 200], abs=40)


def known(round: int = 1, **history: list[float]) -> Known:
    arrays = {name: np.array(values) for name, values in history.items()}
    return Known(round, History(**arrays), np.zeros(0))


MEMBERS = np.arange(6)


def test_the_nearest_to_the_centre_are_chosen_and_ties_are_drawn():
    gaps = Known(1, History(), np.array([0.5, 0.1, 0.3, 0.2, 0.9, 0.9]))
    choose = NearestToCentre().choose
    assert choose(MEMBERS, 3, np.random.default_rng(0), gaps).tolist() == [1, 2, 3]
    level = Known(1, History(), np.zeros(6))
    drawn = {
        tuple(choose(MEMBERS, 2, np.random.default_rng(seed), level).tolist())
        for seed in range(40)
    }
    assert len(drawn) > 5


@given(st.integers(0, 999), st.integers(1, 6), st.integers(1, 60))
def test_oort_chooses_without_replacement(seed, count, round):
    rng = np.random.default_rng(seed)
    history = History(
        rng.random(6) * 10,
        np.where(rng.random(6) < 0.3, np.nan, rng.random(6)),
        rng.integers(0, round + 1, 6),
        rng.random(round),
    )
    chosen = Oort().choose(MEMBERS, count, rng, Known(round, history, np.zeros(0)))
    assert len(set(chosen.tolist())) == count
    assert set(chosen.tolist()) <= set(MEMBERS.tolist())


def test_oort_prefers_large_losses_and_fast_devices():
    seen = known(
        2,
        utility=[1.0, 9.0, 9.0, 5.0, 1.0, 1.0],
        seconds=[10.0, 10.0, 100.0, 10.0, 10.0, 10.0],
        last=[1, 1, 1, 1, 1, 1],
    )
    scores = Oort().scores(MEMBERS, seen)
    # T is the 30th percentile, 10 s: client 2 has a hundredth of client 1's score.
    assert scores[2] == pytest.approx(scores[1] / 100)
    assert scores[1] > scores[3] > scores[0]
    assert Oort(penalty=0).scores(MEMBERS, seen)[2] == pytest.approx(scores[1])


def test_oort_comes_back_to_clients_not_seen_for_long():
    seen = known(50, utility=[1.0] * 6, seconds=[1.0] * 6, last=[1, 49, 49, 49, 49, 49])
    scores = Oort().scores(MEMBERS, seen)
    assert scores.argmax() == 0
    assert scores[0] - scores[1] == pytest.approx(
        np.sqrt(0.1 * np.log(50)) - np.sqrt(0.1 * np.log(50) / 49)
    )


def half_seen(count: int, round: int = 1) -> Known:
    """Return what is known when every second of so many was seen before."""
    last = np.where(np.arange(count) % 2, 0, 1)
    history = History(np.ones(count), np.ones(count), last, np.ones(1))
    return Known(round, history, np.zeros(0))


@pytest.mark.parametrize(
    ("round", "fewest"),
    # .9, then .98 of it in each round, and never below .3.
    [(1, 90), (2, 88), (11, 73), (51, 32), (56, 30), (999, 30)],
)
def test_oort_explores_less_from_round_to_round(round, fewest):
    found = half_seen(400, round)
    rng, unseen = np.random.default_rng(0), []
    for _ in range(20):
        chosen = Oort().choose(np.arange(400), 100, rng, found)
        unseen.append(int((chosen % 2).sum()))
    assert set(unseen) <= {fewest, fewest + 1}
    assert fewest in unseen


def test_oort_explores_in_clusters_that_give_one_participant():
    """A share of 0.3 of one client is one client in three rounds of ten, not none."""
    late, one = half_seen(2, round=500), np.arange(2)
    drawn = [
        int(Oort().choose(one, 1, np.random.default_rng(seed), late)[0])
        for seed in range(400)
    ]
    # Expected 120 times, with a standard deviation of 9.
    assert drawn.count(1) == pytest.approx(120, abs=40)
    never = Oort(exploration=0, least_exploration=0)
    assert {
        int(never.choose(one, 1, np.random.default_rng(seed), late)[0])
        for seed in range(50)
    } == {0}


# Scores at the first round: ten of 1, ten of .06, ten of .04, and 0.
STEPS = np.repeat([1.0, 0.06, 0.04, 0.0], [10, 10, 10, 1])


def exploited(count: int = 1, **changes: float) -> np.ndarray:
    """Return the scores that are drawn in many attempts."""
    oort = Oort(exploration=0, least_exploration=0, **changes)
    ones, members = np.ones(len(STEPS)), np.arange(len(STEPS))
    history = History(STEPS, ones, ones.astype(np.int64), np.ones(1))
    found, rng = Known(1, history, np.zeros(0)), np.random.default_rng(0)
    assert oort.scores(members, found) == pytest.approx(STEPS)
    drawn = [oort.choose(members, count, rng, found) for _ in range(400)]
    return STEPS[np.concatenate(drawn)]


def test_oort_draws_among_those_near_the_last_one_needed_or_ten_times_as_many():
    assert {*exploited()} == {1.0, 0.06}
    assert {*exploited(cut_off=0.5)} == {1.0}
    # Of two, twenty are candidates whatever they score; of three, thirty.
    assert {*exploited(2, cut_off=0.5)} == {1.0, 0.06}
    assert {*exploited(3, cut_off=0.5)} == {1.0, 0.06, 0.04}
    # By scores: ten of 1 against ten of .06, 94%, with a standard deviation of 1.2.
    assert np.mean(exploited() == 1) == pytest.approx(1 / 1.06, abs=0.06)


def test_oort_clips_utilities_at_their_90th_percentile():
    utility = [*range(1, 11), 1e6]
    seen = known(1, utility=utility, seconds=[1.0] * 11, last=[1] * 11)
    scores = Oort().scores(np.arange(11), seen)
    assert scores[-1] == scores[-2] == 1
    assert scores[:-1] == pytest.approx(np.linspace(0, 1, 10))


def test_the_pacer_allows_more_time_while_the_utility_stays_the_same():
    oort = Oort(pacer_step=2)
    assert oort.pace(History(gained=np.ones(3))) == 30
    assert oort.pace(History(gained=np.ones(4))) == 35
    # From 2: more by a tenth at most, less by five times at least.
    for late, pace in ((1.09, 35), (1.2, 30), (5.9, 30), (6.0, 25)):
        assert oort.pace(History(gained=np.array([1, 1, late, late]))) == pace


def test_a_history_records_participants_only():
    before = History().extended(3)
    after = before.noted(4, np.array([2]), np.array([7.0]), np.array([1.5]))
    assert after.last.tolist() == [0, 0, 4]
    assert after.utility.tolist() == [0, 0, 7]
    assert before.last.tolist() == [0, 0, 0]
    # Who comes later was never seen, and the others stay as they are.
    later = after.extended(4)
    assert later.utility.tolist() == [0, 0, 7, 0]
    assert np.array_equal(later.seconds, [np.nan, np.nan, 1.5, np.nan], equal_nan=True)
    assert later.last.tolist() == [0, 0, 4, 0]
    assert later.last.dtype == np.int64


def test_the_pacer_uses_the_mean_utility_of_exploited_clients():
    after = History().extended(3)
    for rows, utility in (([2], [7.0]), ([1, 2], [50.0, 3.0]), ([1, 2], [5.0, 4.0])):
        after = after.noted(1, np.array(rows), np.array(utility), np.ones(len(rows)))
    assert after.gained.tolist() == [0, 3, 4.5]

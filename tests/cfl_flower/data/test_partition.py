from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.data.partition import LabelGroups, deal_once, draw
from cfl_flower.errors import ConfigError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_label_groups_are_disjoint_and_hold_their_share() -> None:
    layout = LabelGroups(groups=5, purity=0.95).layout(20, 10, [], rng())
    # Two labels share 0.95, and 0.05 is spread over all ten.
    own = layout.distributions > 0.1
    assert own.sum(axis=1).tolist() == [2] * 5
    assert own.sum(axis=0).tolist() == [1] * 10
    assert layout.distributions[own] == pytest.approx(0.475 + 0.005)
    assert layout.distributions[~own] == pytest.approx(0.005)
    assert np.bincount(layout.concepts).tolist() == [4] * 5


def test_a_new_layout_has_no_group_that_ever_existed() -> None:
    partition, layouts = LabelGroups(groups=3), []
    for _ in range(4):
        layouts.append(partition.layout(9, 10, layouts, rng(len(layouts))))
    rows = [row.tobytes() for layout in layouts for row in layout.distributions]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize(
    "options",
    [{"groups": 0}, {"purity": 1.5}, {"samples": 0}, {"test_samples": -1}],
)
def test_settings_out_of_range_name_themselves(options: dict) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=rf"partition\.{name}="):
        LabelGroups(**options)


def test_more_groups_than_labels_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"partition\.groups=11.*10 labels"):
        LabelGroups(groups=11).layout(20, 10, [], rng())


@given(st.integers(0, 99), st.integers(1, 12), st.integers(0, 300))
def test_every_sample_is_dealt_to_exactly_one_client(
    seed: int, clients: int, samples: int
) -> None:
    labels = rng(seed).integers(0, 4, samples)
    demand = rng(seed + 1).dirichlet(np.full(4, 0.3), clients)
    hands = deal_once(labels, demand, rng(seed))
    assert len(hands) == clients
    assert sorted(np.concatenate(hands).tolist()) == list(range(samples))


def test_a_label_is_shared_in_proportion_to_the_demand() -> None:
    labels = np.array([0] * 60 + [1] * 40)
    hands = deal_once(labels, np.array([[1.0, 0], [2.0, 1]]), rng())
    counts = [np.bincount(labels[hand], minlength=2).tolist() for hand in hands]
    assert counts == [[20, 0], [40, 40]]


def test_a_label_that_nobody_wants_is_shared_evenly() -> None:
    hands = deal_once(np.zeros(10, int), np.array([[0, 1.0], [0, 1.0]]), rng())
    assert [len(hand) for hand in hands] == [5, 5]


def test_drawn_samples_follow_the_demand_and_may_repeat() -> None:
    labels = np.array([2, 0, 1, 0])
    (hand,) = draw(labels, np.array([[0.25, 0, 0.75]]), np.array([4000]), rng())
    assert len(hand) == 4000
    shares = np.bincount(labels[hand], minlength=3) / 4000
    assert shares == pytest.approx([0.25, 0, 0.75], abs=0.03)
    assert set(hand.tolist()) == {0, 1, 3}


def test_each_client_draws_its_own_number_of_samples() -> None:
    hands = draw(np.arange(4), np.ones((3, 4)), np.array([5, 0, 2]), rng())
    assert [len(hand) for hand in hands] == [5, 0, 2]
    assert draw(np.arange(4), np.ones((0, 4)), np.array([], int), rng()) == []


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_label_without_samples_is_drawn_by_nobody(absent: int) -> None:
    labels = np.repeat([label for label in range(3) if label != absent], 5)
    demand = np.array([[0.5, 0.3, 0.2], np.eye(3)[absent]])
    some, only = draw(labels, demand, np.array([200, 200]), rng())
    present = demand[0] * (np.arange(3) != absent)
    shares = np.bincount(labels[some], minlength=3) / 200
    assert shares == pytest.approx(present / present.sum(), abs=0.1)
    # Who wants nothing that is there takes what is there.
    assert set(labels[only].tolist()) == set(labels.tolist())


@pytest.mark.parametrize(("groups", "events"), [(1, 1), (7, 2), (10, 1)])
def test_without_new_groups_the_drift_is_refused(groups: int, events: int) -> None:
    partition, known = LabelGroups(groups), []
    with pytest.raises(ConfigError, match=rf"groups={groups} .* event {events} of"):
        for _ in range(events + 1):
            known.append(partition.layout(20, 10, known, rng()))


@given(st.integers(0, 99), st.integers(1, 9), st.integers(0, 200))
def test_shares_of_a_label_are_off_by_rounding_only(
    seed: int, clients: int, samples: int
) -> None:
    demand = rng(seed).dirichlet(np.ones(clients))[:, None]
    hands = deal_once(np.zeros(samples, int), demand, rng(seed))
    sizes = np.array([len(hand) for hand in hands])
    assert (abs(sizes - samples * demand[:, 0]) <= 1 + 1e-6).all()


@given(st.integers(0, 99), st.integers(1, 10), st.integers(1, 30))
def test_groups_cover_all_labels_and_take_all_clients_in_turn(
    seed: int, groups: int, clients: int
) -> None:
    layout = LabelGroups(groups, purity=1).layout(clients, 10, [], rng(seed))
    assert ((layout.distributions > 0).sum(axis=0) == 1).all()
    assert layout.per_client.sum(axis=1) == pytest.approx(1)
    members = np.bincount(layout.concepts, minlength=groups)
    assert members.max() - members.min() <= 1


def test_who_follows_which_group_is_drawn() -> None:
    drawn = [
        LabelGroups(groups=5).layout(20, 10, [], rng(seed)).concepts.tolist()
        for seed in range(4)
    ]
    assert len({tuple(concepts) for concepts in drawn}) == 4


def test_a_client_may_get_nothing() -> None:
    hands = deal_once(np.array([0, 1]), np.array([[1.0, 1], [0, 0]]), rng())
    assert [hand.tolist() for hand in hands] == [[0, 1], []]


def test_which_samples_a_client_gets_is_drawn() -> None:
    hands = [deal_once(np.zeros(50, int), np.ones((2, 1)), rng(s))[0] for s in (0, 1)]
    assert len(hands[0]) == len(hands[1]) == 25
    assert hands[0].tolist() != hands[1].tolist() != list(range(25))


def test_rounding_favours_no_client_over_all_labels() -> None:
    # One sample of each of 400 labels for two clients: half each, not all to one.
    hands = deal_once(np.arange(400), np.ones((2, 400)), rng())
    assert len(hands[0]) == pytest.approx(200, abs=50)


@pytest.mark.parametrize("seed", range(4))
def test_the_only_groups_that_are_left_are_found(seed: int) -> None:
    # Four labels split into two pairs in three ways.
    partition, layouts = LabelGroups(groups=2), []
    for period in range(3):
        layouts.append(partition.layout(4, 4, layouts, rng(10 * seed + period)))
    rows = [row.tobytes() for layout in layouts for row in layout.distributions]
    assert len(set(rows)) == 6


@pytest.mark.parametrize("seed", range(4))
def test_a_single_sample_goes_to_who_wants_it_most(seed: int) -> None:
    hands = deal_once(np.array([0]), np.array([[0.1], [0.9]]), rng(seed))
    assert [len(hand) for hand in hands] == [0, 1]

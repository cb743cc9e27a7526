from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.allocation import draw
from cfl_flower.data.worlds.label_skew import Dirichlet, FewClasses, LabelGroups
from cfl_flower.data.worlds.natural import Natural
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.world import (
    Allocation,
    Layout,
    World,
    allocate,
    first_world,
    times_allocated,
)
from cfl_flower.errors import ConfigError


def allocate_again(
    partition: Partition, clients: int, classes: int, times: int, seed: int = 0
) -> tuple[Allocation, ...]:
    world = first_world(partition.layout(clients, classes, [], seed))
    for _ in range(times - 1):
        layout = partition.layout(clients, classes, world.allocations, seed)
        world = allocate(world, layout, np.ones(clients, bool))
    return world.allocations


def kinds(layout: Layout) -> np.ndarray:
    return np.unique(layout.demand, axis=0)


def test_label_groups_are_disjoint_and_hold_their_share():
    layout = LabelGroups(groups=5, purity=0.95).layout(20, 10, [], 0)
    # Two labels share 0.95, and 0.05 is spread over all ten.
    own = layout.demand > 0.1
    assert own.sum(axis=1).tolist() == [2] * 20
    assert own.sum(axis=0).tolist() == [4] * 10
    assert layout.demand[own] == pytest.approx(0.475 + 0.005)
    assert layout.demand[~own] == pytest.approx(0.005)
    assert np.bincount(layout.groups).tolist() == [4] * 5
    for group in range(5):
        assert len(np.unique(layout.demand[layout.groups == group], axis=0)) == 1


@given(st.integers(0, 99), st.integers(1, 10), st.integers(1, 30))
def test_groups_cover_all_labels_and_take_all_clients_in_turn(seed, groups, clients):
    layout = LabelGroups(groups=groups, purity=1).layout(clients, 10, [], seed)
    if clients >= groups:
        assert ((kinds(layout) > 0).sum(axis=0) == 1).all()
    assert layout.demand.sum(axis=1) == pytest.approx(1)
    members = np.bincount(layout.groups, minlength=groups)
    assert members.max() - members.min() <= 1


@pytest.mark.parametrize("seed", range(4))
def test_the_only_groups_that_are_left_are_found(seed):
    # Four labels split into two pairs in three ways.
    allocations = allocate_again(LabelGroups(groups=2), 4, 4, times=3, seed=seed)
    rows = np.concatenate([kinds(each.layout) for each in allocations])
    assert len(np.unique(rows, axis=0)) == 6


def test_a_dirichlet_partition_spreads_each_label_over_the_clients():
    layout = Dirichlet(alpha=0.5).layout(20, 10, [], 0)
    assert layout.demand.sum(axis=0) == pytest.approx(1)
    assert not layout.groups.any()
    # The variance of a share is m (1 - m) / (20 alpha + 1) with m = 1/20.
    draws = [Dirichlet(alpha=0.5).layout(20, 10, [], s).demand for s in range(50)]
    assert np.var(draws) == pytest.approx(0.05 * 0.95 / 11, rel=0.1)


def test_few_classes_are_neighbours_and_their_sizes_uneven():
    layout = FewClasses(labels=2, sigma=2.0).layout(30, 10, [], 0)
    for client, row in enumerate(layout.demand):
        assert set(np.flatnonzero(row)) == {client % 10, (client + 1) % 10}
    assert layout.groups.tolist() == [client % 10 for client in range(30)]
    shares = np.log(layout.demand[layout.demand > 0])
    assert shares.std() == pytest.approx(2, rel=0.3)
    # What a client's shares have in common.
    sizes = FewClasses(labels=2, sigma=0, size_sigma=2.0).layout(300, 10, [], 0).demand
    largest = sizes.max(axis=1)
    assert (sizes[sizes > 0].reshape(300, 2) == largest[:, None]).all()
    assert np.log(largest).std() == pytest.approx(2, rel=0.1)


def test_rotations_and_shifts_are_spread_evenly_in_every_combination():
    world = Partition(rotations=[0, 90], shifts=[0, 3]).begin(40, 10, seed=0)
    shifts = world.relabel[:, 0]
    pairs, counts = np.unique(
        np.stack([world.degrees, shifts]), axis=1, return_counts=True
    )
    assert pairs.T.tolist() == [[0, 0], [0, 3], [90, 0], [90, 3]]
    assert counts.tolist() == [10] * 4
    assert world.relabel[shifts == 3][0].tolist() == [3, 4, 5, 6, 7, 8, 9, 0, 1, 2]


def owned(owners: list[int]) -> Pool:
    count = len(owners)
    arrays = {"x": np.zeros((count, 2), np.float32), "y": np.zeros(count, np.int64)}
    return Pool.from_arrays({**arrays, "owner": np.array(owners, np.int64)})


def test_a_natural_client_is_the_same_owner_in_training_and_testing():
    pools = owned([2, 0, 1, 0, 2, 2]), owned([1, 2, 3, 0])
    for clients in (4, 2):
        world = first_world(Natural().layout(clients, 1, [], 0))
        train, test = Natural().allocate_samples(pools, world.allocations[0], 0, None)
        assert len(train) == len(test) == clients
        owner_of = [set(pools[1].owners[hand].tolist()) for hand in test]
        assert all(len(owner) == 1 for owner in owner_of)
        for hand, owner in zip(train, owner_of, strict=True):
            wanted = np.flatnonzero(pools[0].owners == next(iter(owner)))
            assert sorted(hand.tolist()) == wanted.tolist()


def test_more_natural_clients_come_after_those_there_were():
    owners = np.random.default_rng(0).permutation(np.arange(40) % 20).tolist()
    pools = owned(owners), owned(owners)

    def dealt(clients: int) -> list[list[int]]:
        allocation = first_world(Natural().layout(clients, 1, [], 3)).allocations[0]
        hands = Natural().allocate_samples(pools, allocation, 3, None)
        return [hands[0][client].tolist() for client in range(clients)]

    everyone = dealt(20)
    for fewer in (1, 7, 19):
        assert dealt(fewer) == everyone[:fewer]
    assert sorted(index for hand in everyone for index in hand) == list(range(40))


def test_natural_clients_need_owners_and_enough_of_them():
    allocation = first_world(Natural().layout(3, 1, [], 0)).allocations[0]
    nobody = replace(owned([0]), owners=None)
    for pools, words in (
        ((owned([0, 1]), owned([0])), "at most the 2 owners"),
        ((owned([]), owned([])), "at most the 0 owners"),
        ((nobody, nobody), "use another partition"),
    ):
        with pytest.raises(ConfigError, match=words):
            Natural().allocate_samples(pools, allocation, 0, None)


def test_named_groups_are_the_labels_that_are_named():
    named = [[0, 1, 2], [3, 4], [5, 6], [7, 8, 9]]
    partition = LabelGroups(groups=4, purity=1.0, named=named)
    layout = partition.layout(8, 10, [], 0)
    for client, group in enumerate(layout.groups):
        assert np.flatnonzero(layout.demand[client]).tolist() == named[group]
    assert np.bincount(layout.groups).tolist() == [2] * 4


@given(st.integers(0, 99), st.integers(1, 10), st.integers(1, 12))
def test_groups_that_may_share_labels_cover_them_first(seed, labels, groups):
    partition = LabelGroups(groups=groups, purity=1, labels=labels)
    layout = partition.layout(24, 10, [], seed)
    held = kinds(layout) > 0
    assert (held.sum(axis=1) == labels).all()
    assert held.any(axis=0).sum() == min(10, groups * labels)
    # No label comes twice before all have come once.
    assert groups * labels > 10 or held.sum(axis=0).max() == 1
    # Groups of the same labels are one concept.
    assert len(held) == len(np.unique(layout.groups))


def test_each_labels_samples_are_spread_by_a_dirichlet_distribution():
    partition = LabelGroups(groups=5, purity=1, labels=3, alpha=0.25)
    layout = partition.layout(4000, 10, [], 0)
    plain = LabelGroups(groups=5, purity=1, labels=3).layout(4000, 10, [], 0)
    assert ((layout.demand > 0) <= (plain.demand > 0)).all()
    assert layout.groups.tolist() == plain.groups.tolist()
    for label in np.flatnonzero(plain.demand.any(axis=0)):
        shares = layout.demand[plain.demand[:, label] > 0, label]
        # The variance of n times a share is nearly 1 / alpha.
        assert np.var(shares / shares.mean()) == pytest.approx(4, rel=0.3)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 5.0])
@pytest.mark.parametrize("purity", [1.0, 0.9])
def test_who_holds_a_label_wants_some_of_it_however_uneven_the_shares(alpha, purity):
    plain = LabelGroups(groups=5, purity=purity)
    layout = replace(plain, alpha=alpha).layout(40, 10, [], 0)
    held = plain.layout(40, 10, [], 0).demand > 0
    assert np.array_equal(layout.demand > 0, held)
    # So nobody draws samples of all labels, for want of a wish.
    labels = np.arange(1000) % 10
    drawn = draw(labels, layout.demand, np.full(40, 30), np.random.default_rng(0))
    found = np.stack([np.bincount(labels[each], minlength=10) for each in drawn])
    assert (found.sum(axis=1) == 30).all()
    assert not found[~held].any()


def test_without_new_groups_clients_are_spread_over_those_that_exist():
    partition = LabelGroups(groups=5)
    # Five labels make the five groups in one way only.
    old = partition.layout(20, 5, [], 0)
    new = partition.layout(20, 5, first_world(old).allocations, 0)
    assert {*old.groups.tolist()} == {*new.groups.tolist()} == {0, 1, 2, 3, 4}
    assert (old.groups != new.groups).mean() > 0.5
    for group in range(5):
        own = [layout.demand[layout.groups == group][0] for layout in (old, new)]
        assert np.array_equal(*own)


@pytest.mark.parametrize(("shape", "groups"), [((3, 10), 4), ((4, 9), 4), ((4, 10), 3)])
def test_a_layout_of_other_clients_or_labels_is_refused(shape, groups):
    class Mine(Natural):
        def layout(self, *_: object) -> Layout:
            return Layout(np.ones(shape), np.zeros(groups, np.int64))

    with pytest.raises(ConfigError, match=r"Mine.layout: \w+.shape=\(.*; use \(4,"):
        Mine().begin(4, 10, 0)


@pytest.mark.parametrize("wish", [np.nan, -1.5, np.inf])
def test_a_demand_that_is_no_share_is_refused(wish):
    demand = np.array([[1.0, wish], [1.0, 1.0]])
    with pytest.raises(ConfigError, match=rf"demand=\[ *{wish}.* use finite .* layout"):
        Layout(demand, np.zeros(2, np.int64))


@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_a_layout_may_be_of_lists_or_tensors(kind):
    given = kind([[1.0, 2.0], [3.0, 4.0]]), kind([0, 1])
    layout = Layout(*given)
    assert layout.demand.tolist() == [[1, 2], [3, 4]]
    assert first_world(layout).groups.tolist() == [[0, 0], [1, 1]]


def test_a_client_counts_the_allocations_that_it_took_part_in_alone():
    layout = Layout(np.ones((3, 2)), np.zeros(3, np.int64))
    copies = np.array([2, 0, 1])
    world: World = first_world(layout, copies=copies)
    assert times_allocated([]) == 0
    for takers in ([1, 0, 0], [1, 1, 0], [0, 0, 1]):
        world = allocate(world, layout, np.array(takers, bool))
    found = [each.draws.tolist() for each in world.allocations]
    assert found == [[0, 0, 0], [1, 1, 1], [2, 1, 1], [3, 2, 1]]
    assert [each.number for each in world.allocations] == [0, 1, 2, 3]
    assert all(np.array_equal(each.copies, copies) for each in world.allocations)
    assert world.allocation[:, 0].tolist() == [2, 2, 3]

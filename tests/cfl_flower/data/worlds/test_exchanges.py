"""Clients that exchange all that they hold, or a label of it."""

import itertools

import numpy as np
import pytest

from cfl_flower.data.worlds.changes import Exchange, Restore
from cfl_flower.data.worlds.drift import Occasion
from cfl_flower.data.worlds.label_skew import FewClasses
from cfl_flower.data.worlds.mixtures import Mixtures
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.world import Layout, first_world
from tests.cfl_flower.data.worlds.test_drift import same, timeline, worlds


def test_swapped_clients_exchange_everything_and_nothing_is_lost():
    line = timeline(Exchange(every=1, first=2, probability=0.05), clients=200, total=50)
    moved = []
    for before, after in itertools.pairwise(worlds(line)):
        owner = after.source[:, 0]
        assert (after.source == owner[:, None]).all()
        assert sorted(owner) == list(range(200))
        moved.append(np.count_nonzero(owner != before.source[:, 0]))
        place = {before.source[i, 0]: before.groups[i, 0] for i in range(200)}
        assert after.groups[:, 0].tolist() == [place[who] for who in owner]
        # In pairs: whoever has my samples gave me theirs.
        order = np.argsort(before.source[:, 0])[owner]
        assert (order[order] == np.arange(200)).all()
    # All meet in pairs, of which 5% exchange.
    assert np.mean(moved) == pytest.approx(10, abs=2)


def test_swap_part_gives_a_label_of_ones_own_for_one_of_the_others():
    # Clients 0 and 5 hold the labels 0, 1 and 5, 6.
    drift = Exchange([2], ids=[0, 5], part=True)
    line = timeline(drift, partition=FewClasses(labels=2))
    before, after = worlds(line)
    changed = (before.source != after.source).any(axis=1)
    assert np.flatnonzero(changed).tolist() == [0, 5]
    for client, mine, others in ((0, {0, 1}, {5, 6}), (5, {5, 6}, {0, 1})):
        held = set(np.flatnonzero(after.demand[client]))
        assert len(held & mine) == len(held & others) == 1
    for label in range(10):
        assert sorted(after.source[:, label]) == list(range(20))
    moved = line.concepts(1) != line.concepts(2)
    assert np.flatnonzero(moved).tolist() == [0, 5]


def test_swap_part_without_a_label_of_ones_own_swaps_nothing_or_any_two():
    # Clients 0 and 10 hold the same two labels: any two change hands.
    same_labels = Exchange([2], ids=[0, 10], part=True)
    for seed in range(9):
        line = timeline(same_labels, partition=FewClasses(labels=2), seed=seed)
        before, after = worlds(line)
        assert (before.source != after.source).sum() == 4
    # Client 0 holds all, client 1 two: only one of them has labels of its own.
    world = first_world(Layout(np.array([[1.0, 1, 1], [1, 1, 0]]), np.array([0, 1])))
    occasion = Occasion(Partition(), seed=0, round=2, number=0, occurrence=0)
    assert same(Exchange([2], part=True).apply(world, occasion), world)


def test_exchanged_mixtures_go_with_the_samples():
    line = timeline(Exchange([2]), Restore([3]), partition=Mixtures(), clients=10)
    one, two, three = worlds(line)
    owner = two.source[:, 0]
    assert np.array_equal(two.mixture, one.mixture[owner])
    assert np.array_equal(line.concepts(2), line.concepts(1)[owner])
    assert same(one, three)
    assert Partition().begin(5, 10, 0).mixture.tolist() == [[1.0]] * 5

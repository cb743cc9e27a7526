"""What changes is what was said, for whom it was said: the contract of every drift."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.worlds.appearance import Corrupt, DrawPatterns
from cfl_flower.data.worlds.arrivals import LabelBuckets, Release
from cfl_flower.data.worlds.changes import Exchange, Regroup, Relabel, Restore, Rotate
from cfl_flower.data.worlds.drift import Change, Schedule
from cfl_flower.data.worlds.label_skew import Dirichlet, FewClasses, LabelGroups
from cfl_flower.data.worlds.mixtures import Mixtures
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.data.worlds.world import World, traits

CLIENTS = 12
ROUNDS = 8
SOME = [1, 4, 7, 10]
"""The clients whom every change concerns."""
WHEN: dict[str, Any] = {"rounds": [3, 6], "ids": SOME}
OFTEN: dict[str, Any] = {"every": 3, "first": 3, "ids": SOME}


class Case(NamedTuple):
    """A drift, and what it may change."""

    drift: Change
    traits: set[str]
    partition: Partition = LabelGroups(groups=5)
    undone: bool = False
    """The same event again restores what there was."""
    drawn: bool = False
    """Those who change draw their samples, with replacement."""


DEALT = {"allocation", "source", "groups"}
CASES = {
    "regroup": Case(Regroup(**WHEN), DEALT, drawn=True),
    "shares": Case(Regroup(**WHEN), DEALT, Dirichlet(), drawn=True),
    "swap": Case(Relabel(**WHEN, swaps=[[1, 2]]), {"relabel"}, undone=True),
    "permute": Case(Relabel(**WHEN, permutation=[*range(1, 10), 0]), {"relabel"}),
    "random": Case(Relabel(**WHEN, random_swaps=1), {"relabel"}),
    "dealt": Case(Relabel(**WHEN, random_labels=6), {"relabel"}),
    "patterns": Case(DrawPatterns(**WHEN), {"degrees"}, Partition()),
    "labels": Case(
        DrawPatterns(**WHEN, random_labels=9), {"looks", "test_looks"}, Partition()
    ),
    "turn": Case(Rotate(**WHEN, degrees=180.0), {"degrees"}, undone=True),
    "exchange": Case(Exchange(**WHEN), {"source", "groups"}),
    "part": Case(
        Exchange(**WHEN, part=True), {"source", "groups"}, FewClasses(sigma=1.0)
    ),
    "noise": Case(
        Corrupt(**WHEN, labels=[1, 2]), {"looks", "test_looks"}, Partition(), True
    ),
    "tests": Case(Corrupt(**WHEN, tests_only=True), {"test_looks"}, undone=True),
    "release": Case(Release(**OFTEN), {"since", "until", "order"}),
    "buckets": Case(LabelBuckets(**OFTEN, buckets=5), {"visible"}, Partition()),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def stream(case: Case, *later: Change, seed: int = 3) -> Stream:
    steps = {str(n): each for n, each in enumerate((case.drift, *later))}
    drift = Schedule(steps=steps) if later else case.drift
    return Stream(Digits(), case.partition, drift, CLIENTS, seed, ROUNDS)


def changed(one: World, two: World) -> dict[str, np.ndarray]:
    """Return the clients of which a trait differs, for each trait that does."""
    others = traits(two)
    differing = {
        name: (value != others[name]).reshape(CLIENTS, -1).any(axis=1)
        for name, value in traits(one).items()
    }
    return {name: clients for name, clients in differing.items() if clients.any()}


def shown(source: Stream, client: int, round: int) -> list[torch.Tensor]:
    view = source.view(client, round)
    return [*view.train(), *view.test()]


def same(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, two, strict=True))


@every_case
def test_no_other_trait_and_no_other_client_changes(case):
    line = stream(case).timeline
    assert line.shown(ROUNDS) == [1, 3, 6]
    concept = {"groups", "domains", "degrees", "relabel", "looks"}
    for round in line.changes:
        found = changed(line.world(round - 1), line.world(round))
        assert {*found} <= case.traits
        concerned = np.any(list(found.values()), axis=0)
        assert {*np.flatnonzero(concerned)} <= {*SOME}
        # A concept changes with what it consists of, and with nothing else.
        held = [clients for name, clients in found.items() if name in concept]
        moved = line.concepts(round) != line.concepts(round - 1)
        none = np.zeros(CLIENTS, bool)
        assert np.array_equal(moved, np.any([none, *held], axis=0))


@every_case
def test_samples_change_at_its_rounds_and_nobody_elses(case):
    source = stream(case)
    others = [client for client in range(CLIENTS) if client not in SOME]
    for client in others:
        assert same(shown(source, client, 2), shown(source, client, ROUNDS))
    for early, late in ((1, 2), (3, 5), (6, ROUNDS)):
        assert all(same(shown(source, c, early), shown(source, c, late)) for c in SOME)
    for before, after in ((2, 3), (5, 6)):
        pairs = [(shown(source, c, before), shown(source, c, after)) for c in SOME]
        assert not all(same(*pair) for pair in pairs)
    if case.undone:
        assert all(same(shown(source, c, 2), shown(source, c, 6)) for c in SOME)


@every_case
@pytest.mark.parametrize("part", ["train", "test"])
def test_each_sample_has_one_owner(case, part):
    source = stream(case)
    size = len(getattr(source.view(0, 1), f"{part}_pool").labels)
    arriving = {"since", "visible"} & case.traits
    for round in (1,) if case.drawn else (1, 3, 6):
        views = [source.view(client, round) for client in range(CLIENTS)]
        dealt = np.concatenate([getattr(view, f"{part}_indices") for view in views])
        assert len(np.unique(dealt)) == len(dealt)
        assert len(dealt) == size or arriving


@every_case
def test_data_follow_from_the_seed_and_the_round_alone(case):
    one = stream(case)
    two = stream(case, Regroup([8], fraction=0.5))
    late = [shown(two, client, 6) for client in SOME]
    for round in (1, 3, 6):
        assert all(same(shown(one, c, round), shown(two, c, round)) for c in SOME)
        concepts = [each.timeline.concepts(round).tolist() for each in (one, two)]
        assert concepts[0] == concepts[1]
    assert all(map(same, late, (shown(one, client, 6) for client in SOME)))
    # What comes after the run has no effect on the name of its data.
    assert stream(case, Rotate([99])).fingerprint() == one.fingerprint()
    assert stream(case, seed=4).fingerprint() != one.fingerprint()


@every_case
def test_restored_clients_hold_what_they_held_first(case):
    source = stream(case, Restore([5]))
    line = source.timeline
    # Without the drift: some parts are released in round 1 already.
    first = stream(case._replace(drift=Rotate()))
    start = first.timeline.world(1)
    assert changed(start, line.world(4))
    assert not changed(start, line.world(5))
    assert line.concepts(5).tolist() == line.concepts(1).tolist()
    assert all(same(shown(first, c, 1), shown(source, c, 5)) for c in SOME)


def test_the_name_of_the_data_differs_wherever_they_do():
    names = {stream(case).fingerprint() for case in CASES.values()}
    assert len(names) == len(CASES)


@every_case
@pytest.mark.parametrize("mixed", [False, True])
def test_nobody_trains_on_what_anyone_validates_on(case, mixed):
    partition = Mixtures(samples=99) if mixed else case.partition
    width = 1 if case.drift.every else 3
    plain = case._replace(partition=partition, drift=replace(case.drift, width=width))
    divided = plain._replace(partition=replace(partition, validation=0.2))
    source, undivided = stream(divided), stream(plain)
    size = len(source.view(0, 1).train_pool.labels)
    trained = set[int]()
    held_out = set[int]()
    for client in range(CLIENTS):
        for round in (1, 3, 4, 5):
            view, whole = (each.view(client, round) for each in (source, undivided))
            trained |= set((view.train_indices % size).tolist())
            held_out |= set((view.held_out % size).tolist())
            both = np.concatenate([view.train_indices, view.held_out])
            assert sorted(both) == sorted(whole.train_indices)
            assert view.test_indices.tolist() == whole.test_indices.tolist()
            assert not len(whole.held_out)
            # As they would be shown for training.
            as_trained = replace(whole, train_indices=view.held_out).train()
            assert all(map(torch.equal, as_trained, view.validation().test()))
    assert not trained & held_out
    assert len(held_out) / len(trained | held_out) == pytest.approx(0.2, abs=0.03)

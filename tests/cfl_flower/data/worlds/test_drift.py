import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.config.compose import compose_config
from cfl_flower.data.worlds.appearance import DrawPatterns
from cfl_flower.data.worlds.arrivals import Release
from cfl_flower.data.worlds.changes import Exchange, Regroup, Relabel, Rotate
from cfl_flower.data.worlds.drift import Change, Schedule
from cfl_flower.data.worlds.label_skew import Dirichlet, FewClasses, LabelGroups
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.timeline import Timeline
from cfl_flower.data.worlds.world import World, differs
from cfl_flower.errors import ConfigError


def timeline(
    *events: Change,
    partition: Partition | None = None,
    clients: int = 20,
    seed: int = 0,
    total: int = 200,
    classes: int = 10,
) -> Timeline:
    named = {str(number): event for number, event in enumerate(events)}
    return Timeline(partition or LabelGroups(), named, clients, classes, seed, total)


def worlds(line: Timeline) -> list[World]:
    return [line.world(round) for round in [1, *line.rounds]]


def same(one: World, two: World) -> bool:
    names = World.__annotations__.keys() - {"allocations"}
    return all(np.array_equal(getattr(one, k), getattr(two, k)) for k in names)


def test_events_that_change_nothing_are_no_changes():
    # After the last part nothing more arrives.
    line = timeline(Release(every=50, first=1, periods=4), total=300)
    # The round after the last included, whose data clients report.
    assert line.rounds[-2:] == [251, 301]
    assert line.changes == [51, 101, 151]
    # Pairs that meet exchange in some rounds only.
    line = timeline(Exchange(every=1, probability=0.05), clients=10, total=100)
    moved = [
        round
        for round in line.rounds
        if (line.world(round).source != line.world(round - 1).source).any()
    ]
    assert line.changes == moved
    assert len(moved) < 40


# Regroup


@pytest.mark.parametrize(
    ("fraction", "moved"), [(0.0, 0), (0.25, 5), (0.38, 8), (1.0, 20)]
)
def test_as_many_clients_change_as_the_fraction_says(fraction, moved):
    line = timeline(Regroup([2, 4, 6], fraction=fraction))
    drawn = set[bytes]()
    for before, after in itertools.pairwise(worlds(line)):
        stayed = (before.groups == after.groups).all(axis=1)
        assert (~stayed).sum() == moved
        assert np.array_equal(before.demand[stayed], after.demand[stayed])
        drawn.add(stayed.tobytes())
    # Other clients in each event.
    assert len(drawn) == (3 if 0 < fraction < 1 else 1)


# Relabel and rotate


def test_names_are_of_what_labels_were_called_last():
    # 1 is called 2, then what is called 2 is called 3.
    one, two = Relabel([2], swaps=[[1, 2]]), Relabel([2], swaps=[[2, 3]])
    events = Schedule(steps={"one": one, "two": two}).events
    world = timeline(*events.values()).world(2)
    assert world.relabel[0, :4].tolist() == [0, 3, 1, 2]


def test_a_permutation_names_every_label_anew():
    names = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    line = timeline(Relabel([2, 3], permutation=names))
    assert line.world(2).relabel[0].tolist() == names
    assert line.world(3).relabel[0].tolist() == [*names[1:], names[0]]
    with pytest.raises(ConfigError, match=r"drift\.permutation=.*once"):
        timeline(Relabel([2], permutation=[0, 0, 1])).world(2)


@given(st.integers(0, 99), st.integers(1, 5))
def test_random_swaps_are_each_clients_own(seed, pairs):
    line = timeline(Relabel([2], random_swaps=pairs, fraction=0.5), seed=seed)
    relabel = line.world(2).relabel
    changed = (relabel != np.arange(10)).sum(axis=1)
    assert sorted(changed.tolist()) == [0] * 10 + [2 * pairs] * 10
    assert (np.sort(relabel, axis=1) == np.arange(10)).all()
    # Twice the same name is the label itself: nothing but swaps.
    assert (np.take_along_axis(relabel, relabel, axis=1) == np.arange(10)).all()
    assert len(np.unique(relabel[changed > 0], axis=0)) > 1


@pytest.mark.parametrize("before", [[1, 2, 0], [2, 0, 1]])
def test_random_swaps_are_of_what_is_held_whatever_its_name_by_now(before):
    own = LabelGroups(groups=2, purity=1, named=[[0, 1], [2]])
    first = Relabel([2], permutation=before)
    line = timeline(first, Relabel([3], random_swaps=1), partition=own, classes=3)
    held = line.world(3).allocations[0].layout.demand > 0
    changed = line.world(3).relabel != line.world(2).relabel
    # Whoever holds two labels swaps these; the third is in nobody's group with one.
    two = held.sum(axis=1) == 2
    assert np.array_equal(changed[two], held[two])
    assert (changed & held)[~two].any(axis=1).all()


@pytest.mark.parametrize(
    "event", ["swap_all", "label_buckets drift.window=2", "regroup"]
)
def test_the_round_after_the_last_is_that_of_a_longer_run(event):
    asked = f"drift={event} drift.every=2 drift.first=3 partition.purity=1".split()
    asked += ["drift.rounds=[]"] * (event == "regroup")
    short, long = (compose_config([*asked, f"rounds={n}"]).timeline for n in (4, 7))
    for round in range(1, 6):
        assert not differs(short.world(round), long.world(round))
    assert 5 in short.changes


def test_dirichlet_clients_have_one_concept_however_uneven_the_shares():
    for partition in (Dirichlet(alpha=0.001), FewClasses(labels=10, sigma=300.0)):
        layout = partition.layout(40, 10, [], 0)
        assert (layout.demand > 0).all()
        assert np.isfinite(layout.demand).all()


@given(st.integers(0, 99), st.integers(1, 10))
def test_random_labels_are_common_and_their_order_each_clients_own(seed, count):
    line = timeline(Relabel([2], random_labels=count), seed=seed)
    relabel = line.world(2).relabel
    assert (np.sort(relabel, axis=1) == np.arange(10)).all()
    touched = (relabel != np.arange(10)).any(axis=0)
    assert touched.sum() <= count
    if count > 4:
        assert len(np.unique(relabel, axis=0)) > 10
        assert touched.sum() == count


@pytest.mark.parametrize("of", [Relabel, DrawPatterns])
def test_more_random_labels_than_there_are_is_an_error(of):
    with pytest.raises(ConfigError, match=r"drift\.random_labels=11 .*at most 10"):
        timeline(of([2], random_labels=11)).world(2)


def test_a_step_of_a_schedule_is_named_in_its_errors_and_lasts_as_long_as_the_run():
    steps = {"turn": Rotate(every=5, first=2, ids=[99]), "swap": Exchange([3])}
    line = Timeline(LabelGroups(), Schedule(steps=steps).events, 20, 10, 0, 9)
    assert line.rounds == [2, 3, 7]
    with pytest.raises(ConfigError, match=r"drift\.steps\.turn\.ids="):
        line.world(2)
    with pytest.raises(ConfigError, match=r"drift\.steps\.bad=int"):
        Schedule(steps={"bad": 3})


@pytest.mark.parametrize(("count", "degrees"), [(4, 90), (25, 14.4)])
def test_equal_turns_bring_the_first_concept_back(count, degrees):
    line = timeline(Rotate([*range(2, count + 2)], degrees=degrees), total=count + 1)
    turned = [line.world(round).degrees[0] for round in range(1, count + 2)]
    assert turned == pytest.approx([*(degrees * np.arange(count)), 0], abs=1e-8)
    assert turned[-1] == 0
    assert np.array_equal(line.concepts(1), line.concepts(count + 1))
    assert not set(line.concepts(1)) & set(line.concepts(2))


# Exchange, release, stream


@pytest.mark.parametrize("classes", [3, 4, 5])
def test_a_presets_swaps_fit_datasets_with_fewer_labels(classes):
    swap = Relabel([2], swaps=[[5, 6]], wrap=True)
    few: dict[str, Any] = {"partition": Partition(), "classes": classes}
    names = timeline(swap, **few).world(2).relabel
    expected = np.arange(classes)
    expected[[5 % classes, 6 % classes]] = 6 % classes, 5 % classes
    assert np.array_equal(names, np.tile(expected, (len(names), 1)))
    with pytest.raises(ConfigError, match=rf"labels from 0 to {classes - 1}"):
        timeline(Relabel([2], swaps=[[5, 6]]), **few).world(2)


def test_two_labels_are_too_few_for_groups_that_swap_others():
    few: dict[str, Any] = {"partition": Partition(), "classes": 2}
    with pytest.raises(ConfigError, match="at least 3 labels, or drift=concept_half"):
        timeline(Relabel([2], swaps=[[5, 6]], wrap=True), **few).world(2)

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.config.compose import compose_config
from cfl_flower.data.worlds.appearance import DrawPatterns
from cfl_flower.data.worlds.arrivals import LabelBuckets, Release
from cfl_flower.data.worlds.changes import Exchange, Regroup, Relabel, Restore, Rotate
from cfl_flower.data.worlds.drift import Change, Occasion, Schedule
from cfl_flower.data.worlds.label_skew import Dirichlet, FewClasses, LabelGroups
from cfl_flower.data.worlds.mixtures import Mixtures
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.timeline import Timeline
from cfl_flower.data.worlds.world import (
    Layout,
    World,
    allocate,
    alter,
    differs,
    first_world,
    relabel_clients,
)
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


def test_a_quarter_of_the_samples_arrives_every_50_rounds():
    line = timeline(Release(every=50, first=1, periods=4))
    assert line.rounds == [1, 51, 101, 151, 201]
    shares = [line.world(round).until[0] for round in (1, 50, 51, 101, 151, 200)]
    assert shares == [0.25, 0.25, 0.5, 0.75, 1, 1]
    # From round 1 on, whatever the times.
    line = timeline(Release([9, 17, 25], order="time", periods=4), total=36)
    assert line.rounds == [1, 9, 17, 25]
    assert [float(line.world(r).until[0]) for r in line.rounds] == [0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize("rounds", [6, 10, 20, 36, 100, 1000])
def test_timestamps_spread_the_stream_over_the_run(rounds):
    asked = ["drift=timestamps", "partition=iid", f"rounds={rounds}"]
    line = compose_config(asked).timeline
    first, last = line.world(1), line.world(rounds)
    assert first.since[0] == 0
    assert first.until[0] <= 0.2
    # One period each round, in a run with fewer rounds than periods.
    assert last.until[0] == (0.6 if rounds == 6 else 1)
    assert line.changes[-1] > 0.7 * rounds


def test_label_buckets_stream_in_and_are_forgotten():
    with pytest.raises(ConfigError, match=r"drift\.fraction=0\.5"):
        LabelBuckets(every=50, first=1, fraction=0.5)
    drift = LabelBuckets(every=50, first=1, buckets=5, window=100)
    line = timeline(drift, partition=Partition(), total=300)
    seen = [line.world(round).visible for round in line.rounds]
    assert all((visible.sum(axis=1) == 4).all() for visible in seen)
    for early, late in itertools.pairwise(seen):
        assert ((early & late).sum(axis=1) == 2).all()
    # Each client has its own buckets; after the last comes the first.
    assert len(np.unique(seen[0], axis=0)) > 1
    assert np.array_equal(seen[0], seen[5])


def test_a_window_in_rounds_keeps_what_arrived_in_them():
    # Buckets arrive in rounds 1, 31, ...: 100 rounds are nearest to three of them.
    drift = LabelBuckets(every=30, first=1, buckets=10, window=100)
    line = timeline(drift, partition=Partition())
    assert {int(line.world(r).visible.sum(axis=1)[0]) for r in line.rounds} == {3}
    # Without a window they only arrive.
    line = timeline(LabelBuckets(every=30, first=1), partition=Partition())
    seen = [int(line.world(round).visible[0].sum()) for round in line.rounds]
    assert seen == [1, 2, 3, 4, 5, 6, 7]


def test_time_passes_by_periods_and_is_forgotten():
    # Two rounds to a day of ten; the last three days are remembered.
    drift = Release(every=2, first=1, periods=10, order="time", window=6)
    line = timeline(drift, total=30)
    days = [
        (float(world.since[0]), float(world.until[0]))
        for world in map(line.world, (1, 2, 3, 5, 15, 17, 29))
    ]
    assert days == [
        *((0.0, 0.3), (0.0, 0.3), (0.1, 0.4), (0.2, 0.5), (0.7, 1.0)),
        *((0.7, 1.0), (0.7, 1.0)),
    ]


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


def test_exchanged_mixtures_go_with_the_samples():
    line = timeline(Exchange([2]), Restore([3]), partition=Mixtures(), clients=10)
    one, two, three = worlds(line)
    owner = two.source[:, 0]
    assert np.array_equal(two.mixture, one.mixture[owner])
    assert np.array_equal(line.concepts(2), line.concepts(1)[owner])
    assert same(one, three)
    assert Partition().begin(5, 10, 0).mixture.tolist() == [[1.0]] * 5


def test_a_change_cannot_write_into_the_world_before():
    class InPlace(Change):
        def change(self, world: World, chosen: np.ndarray, occasion: Occasion) -> World:
            world.degrees[chosen] += 90
            return world

    line = timeline(InPlace(rounds=[2]))
    with pytest.raises(ConfigError, match=r"InPlace.change writes into .* alter\("):
        line.world(2)
    assert not line.world(1).degrees.any()
    with pytest.raises(ValueError, match="read-only"):
        line.world(1).allocations[0].layout.demand[0] = 2


class Own(Change):
    """A change of one's own, by a function of world, mask and occasion."""

    made: Any = None

    def change(self, world: World, chosen: np.ndarray, occasion: Occasion) -> World:
        found: World = self.made(world, chosen)
        return found


FEW = np.arange(20) < 2
NAMES = np.arange(10)[::-1]
WRONG: list[tuple[str, Any, str]] = [
    *(
        (name, change, "the clients to alter=.* a mask")
        for name, who in {
            "indices": np.array([3]),
            "several": np.array([3, 4]),
            "integers": ~FEW.astype(int),
            "too few": FEW[:5],
            "a row too much": FEW[None],
        }.items()
        for change in (
            lambda w, _, who=who: alter(w, who, degrees=90.0),
            lambda w, _, who=who: relabel_clients(w, who, NAMES),
            lambda w, _, who=who: allocate(w, w.allocations[0].layout, who),
        )
    ),
    ("a misspelt trait", lambda w, c: alter(w, c, rotation=9.0), "trait to alter=rot"),
    ("another's trait", lambda w, c: alter(w, c, looked=3), "trait to alter=looked"),
    (
        "labels' mask",
        lambda w, c: alter(w, w.visible, degrees=9.0),
        "degrees becomes=",
    ),
    ("too short", lambda w, c: alter(w, c, degrees=np.ones(3)), "degrees becomes="),
    (
        "wide",
        lambda w, c: alter(w, c, degrees=np.ones((20, 1))),
        "degrees becomes=",
    ),
    ("a text", lambda w, c: alter(w, c, source="x"), "what source becomes"),
    ("a half", lambda w, c: alter(w, c, groups=1.5), "what groups becomes=float64"),
    ("no value", lambda w, c: alter(w, c, degrees=None), "degrees becomes="),
    ("short names", lambda w, c: relabel_clients(w, c, NAMES[:3]), "shape of names"),
    ("tall", lambda w, c: relabel_clients(w, c, NAMES[:, None]), "shape of names"),
    ("nothing", lambda w, c: None, "what Own.change returns=NoneType .* a World"),
    ("a pair", lambda w, c: (w, c), "what Own.change returns=tuple .* a World"),
    (
        "draws",
        lambda w, c: alter(w, c, degrees=float(np.random.random())),
        "Own.change draws from np.random",
    ),
    (
        "a draw of normal numbers",
        lambda w, c: alter(w, c, degrees=float(np.random.normal())),
        "Own.change draws from np.random",
    ),
]


@pytest.mark.parametrize(("made", "told"), [each[1:] for each in WRONG])
def test_a_change_of_one_s_own_that_is_wrong_is_told(made, told, monkeypatch):
    monkeypatch.setattr(Own, "made", staticmethod(made))
    with pytest.raises(ConfigError, match=told):
        timeline(Own(rounds=[2])).world(2)


@pytest.mark.parametrize(
    "values",
    [
        {"degrees": 90.0},
        {"degrees": np.arange(20.0)},
        {"relabel": NAMES},
        {"relabel": np.tile(NAMES, (20, 1))},
        {"source": np.arange(20)[:, None]},
        {"visible": np.zeros((1, 10), bool)},
    ],
)
def test_a_change_of_one_s_own_concerns_whom_it_says(values, monkeypatch):
    monkeypatch.setattr(Own, "made", staticmethod(lambda w, _: alter(w, FEW, **values)))
    line = timeline(Own(rounds=[2]), partition=Partition())
    (name,) = values
    changed = getattr(line.world(2), name) != getattr(line.world(1), name)
    assert not changed[~FEW].any()


@pytest.mark.parametrize("made", [None, (1, 2), np.ones((20, 10))])
def test_a_layout_of_another_type_is_told(made):
    class Mine(Partition):
        def layout(self, *drawn: Any) -> Any:
            return made

    with pytest.raises(ConfigError, match=r"what Mine.layout returns=.* a Layout"):
        timeline(partition=Mine()).world(1)

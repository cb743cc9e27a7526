"""A gradual change reaches one share of the samples after the other."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from cfl_flower.config.compose import compose_config
from cfl_flower.data.worlds.appearance import Corrupt
from cfl_flower.data.worlds.changes import Regroup, Relabel, Restore, Rotate
from cfl_flower.data.worlds.label_skew import LabelGroups
from cfl_flower.data.worlds.mixtures import Mixtures
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.data.worlds.view import View
from cfl_flower.errors import ConfigError
from simulations.periods import preview
from tests.cfl_flower.data.worlds.test_appearance import CLIENTS, stream


def by_row(source: Stream, client: int, round: int) -> dict[int, tuple[bytes, int]]:
    """Return every sample's bytes and label, by its row in the pools."""
    view = source.view(client, round)
    found = {}
    for indices, (x, y), pool in (
        (view.train_indices, view.train(), view.train_pool),
        (view.test_indices, view.test(), view.test_pool),
    ):
        size = len(pool.labels)
        place = 0 if pool is view.train_pool else 100_000
        for row, image, label in zip(indices, x, y, strict=True):
            found[place + int(row) % size] = image.numpy().tobytes(), int(label)
        assert len(indices) == len(set((indices % size).tolist()))
    return found


@limits(max_examples=12, deadline=None)
@given(
    width=st.integers(2, 6),
    ids=st.sets(st.integers(0, CLIENTS - 1), min_size=1),
    number=st.integers(0, 3),
)
def test_a_growing_share_of_the_samples_is_as_afterwards(width, ids, number):
    where = {"ids": sorted(ids), "width": width}
    event = (
        Relabel([3], permutation=[*range(1, 10), 0], **where),
        Rotate([3], **where),
        Corrupt([3], kind="shift", **where),
        Corrupt([3], kind="noise", labels=[*range(9)], **where),
    )[number]
    source = stream(event)
    end = 3 + width - 1
    assert source.timeline.changes == [*range(3, end + 1)]
    for client in range(CLIENTS):
        before = by_row(source, client, 2)
        after = by_row(source, client, end)
        able = [row for row in before if before[row] != after[row]]
        assert bool(able) == (client in ids)
        reached: set[int] = set()
        for step in range(width - 1):
            now = by_row(source, client, 3 + step)
            assert now.keys() == before.keys()
            assert all(now[row] in (before[row], after[row]) for row in now)
            new = {row for row in able if now[row] == after[row]}
            assert reached <= new, "none goes back"
            reached = new
            share = (step + 1) / width
            if able:
                assert len(new) / len(able) == pytest.approx(share, abs=0.12)
            moved = source.timeline.concepts(3 + step) != source.timeline.concepts(1)
            assert moved[client] == (client in ids and share >= 0.5)
    assert source.timeline.world(end).transition is None


def test_samples_that_are_dealt_anew_come_as_those_before_go():
    source = stream(Regroup([3], width=4), partition=LabelGroups())
    before, after = (set(by_row(source, 0, n)) for n in (2, 6))
    rows = [set(by_row(source, 0, n)) for n in (3, 4, 5)]
    for now, share in zip(rows, (0.25, 0.5, 0.75), strict=True):
        assert now <= before | after
        assert before & after <= now
        assert len(now - before) / len(after - before) == pytest.approx(share, abs=0.1)
        left = len(now - after) / len(before - after)
        assert left == pytest.approx(1 - share, abs=0.1)


def test_several_groups_change_together_and_come_back_to_the_same_data():
    events = [
        Relabel([3], swaps=[[1, 2]], ids=[0], width=3),
        Relabel([3], swaps=[[3, 4]], ids=[1], width=3),
        Restore([9], width=3),
    ]
    source = stream(*events)
    found = preview(source, 20)
    assert [period.start for period in found.periods] == [1, 3, 4, 5, 9, 10, 11]
    assert [period.changed for period in found.periods[1:]] == [2] * 6
    assert [period.moved for period in found.periods[1:]] == [0, 2, 0, 0, 2, 0]
    for client in range(CLIENTS):
        assert by_row(source, client, 11) == by_row(source, client, 1)
    late = [by_row(source, 0, n) for n in (3, 10)]
    assert late[0] != late[1]
    once = stream(*events).fingerprint()
    assert once == source.fingerprint()
    faster = [Restore([9], width=2)]
    assert stream(*events[:2], *faster).fingerprint() != once


def by_turn(view: View, part: str) -> dict[int, tuple[bytes, int]]:
    """Return every sample's bytes and label, by its row and its turn."""
    indices, pool = view.test_indices, view.test_pool
    x, y = view.test() if part == "test" else view.train()
    if part == "train":
        indices, pool = view.train_indices, view.train_pool
    keys = (indices % (len(pool.labels) * len(view.turns))).tolist()
    samples = zip(keys, x.numpy(), y.tolist(), strict=True)
    return {key: (image.tobytes(), label) for key, image, label in samples}


MIXTURE = Mixtures(clusters=4, sizes=[80, 80])
"""Which shows samples in four turns: an index counts through the pool four times."""


@pytest.mark.parametrize("partition", [Partition(), MIXTURE], ids=["iid", "mixture"])
@pytest.mark.parametrize(
    "event",
    [
        Relabel([3], permutation=[*range(1, 10), 0], width=3),
        Rotate([3], degrees=45, width=3),
        Corrupt([3], kind="noise", width=3),
        Corrupt([3], kind="noise", width=3, tests_only=True),
    ],
    ids=["relabel", "rotate", "noise", "tests"],
)
def test_a_sample_is_shown_alike_to_all_who_look_at_it(event, partition):
    """Its owner, who tests on everything, and who keeps it for validation."""
    whole = stream(event, partition=replace(partition, tests="whole"))
    kept = stream(event, partition=replace(partition, validation=0.3))
    ends = [by_turn(whole.view(0, n).everything(), "test") for n in (2, 5)]
    assert ends[0] != ends[1]
    for number in (2, 3, 4, 5):
        own = whole.view(0, number)
        everything = own.everything()
        samples = len(own.test_pool.labels)
        found = by_turn(everything, "test")
        assert len(everything.test_indices) == len(found) == samples * len(own.turns)
        # All turns of a sample change at once.
        late = np.full(samples, number < 3) if own.late is None else own.late
        expected = {key: ends[0 if late[key % samples] else 1][key] for key in found}
        assert found == expected
        mine = by_turn(own, "test")
        assert mine == {key: found[key] for key in mine}
        trained = by_turn(own, "train")
        held = by_turn(kept.view(0, number).validation(), "test")
        assert held == {key: trained[key] for key in held}
        left = by_turn(kept.view(0, number), "train")
        assert left == {key: trained[key] for key in trained.keys() - held.keys()}
        assert held
        places = np.array(list(trained)) // len(own.train_pool.labels)
        assert set(own.train_parts.tolist()) == set(places.tolist())


def test_one_gradual_change_is_over_before_the_next_begins():
    asked = ["drift=recurring", "partition=iid", "drift.rounds=[3,6]"]
    assert compose_config([*asked, "drift.width=4"]).timeline.changes[-1] == 9
    words = r"drift\.steps\.first\.rounds=\[6\] .* after 7"
    with pytest.raises(ConfigError, match=words):
        compose_config([*asked, "drift.width=5"])
    with pytest.raises(ConfigError, match=r"drift\.steps\.1\.rounds=\[5\] .* after 6"):
        stream(Rotate([3], width=4), Rotate([5])).timeline.world(5)
    shares = compose_config(["drift=gradual", "partition=iid", "drift.width=0.5"])
    assert shares.timeline.changes == [*range(13, 31)]

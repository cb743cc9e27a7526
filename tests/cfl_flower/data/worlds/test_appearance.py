"""What looks different after a drift is what the drift says, and nothing else."""

import random
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from torch import Tensor

from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.worlds.appearance import Appearance, Corrupt, DrawPatterns
from cfl_flower.data.worlds.changes import Exchange, Relabel, Restore, Rotate
from cfl_flower.data.worlds.drift import Change, Drift, Schedule
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.data.worlds.timeline import Timeline
from cfl_flower.data.worlds.view import rotate
from cfl_flower.errors import ConfigError
from cfl_flower.settings import settings
from cfl_flower.types import FloatArray

CLIENTS = 4
ROWS = np.arange(50)
KINDS = ["noise", "shift", "failure"]


@cache
def digits() -> Digits:
    return Digits()


def stream(*events: Change, partition: Partition | None = None) -> Stream:
    drift: Drift = Schedule(steps={str(n): each for n, each in enumerate(events)})
    return Stream(digits(), partition or Partition(), drift, CLIENTS, 0, 20)


def samples(source: Stream, client: int, round: int) -> list[Tensor]:
    view = source.view(client, round)
    return [*view.train(), *view.test()]


def same(one: list[Tensor], two: list[Tensor]) -> list[bool]:
    return [torch.equal(*pair) for pair in zip(one, two, strict=True)]


@limits(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    labels=st.sets(st.integers(0, 9)),
    ids=st.sets(st.integers(0, CLIENTS - 1), min_size=1),
    tests_only=st.booleans(),
)
def test_what_changes_is_what_was_said(kind, labels, ids, tests_only):
    whom = {"labels": sorted(labels), "ids": sorted(ids), "tests_only": tests_only}
    source = stream(Corrupt([3, 6], kind=kind, strength=0.5, **whom))
    for client in range(CLIENTS):
        before, during, after = (samples(source, client, n) for n in (1, 3, 6))
        assert same(before, after) == [True] * 4
        x, y, test_x, test_y = before
        assert torch.equal(y, during[1])
        assert torch.equal(test_y, during[3])
        for old, new, names, tests in (
            (x, during[0], y, False),
            (test_x, during[2], test_y, True),
        ):
            concerned = torch.isin(names, torch.tensor(sorted(labels or range(10))))
            concerned &= client in ids and (tests or not tests_only)
            changed = (old != new).flatten(1).any(1)
            assert torch.equal(changed, concerned)
    moved = source.timeline.concepts(3) != source.timeline.concepts(1)
    assert np.flatnonzero(moved).tolist() == ([] if tests_only else sorted(ids))
    assert np.array_equal(source.timeline.concepts(6), source.timeline.concepts(1))


def test_noise_is_the_samples_own_wherever_it_lies():
    source = stream(Corrupt([2], kind="noise"), Exchange([3]))
    rows = source.view(0, 2).train_indices
    owner = int(source.timeline.world(3).source[0, 0])
    assert owner != 0
    first = source.view(owner, 2)
    assert torch.equal(first.train()[0], source.view(0, 3).train()[0])
    noise = source.view(0, 2).train()[0] - source.view(0, 1).train()[0]
    assert noise.std() == pytest.approx(0.5, rel=0.02)
    assert abs(float(noise.mean())) < 0.01
    # Two samples do not share their noise, nor do training and test samples.
    assert len(noise.flatten(1).unique(dim=0)) == len(rows)
    whole = [replace(source.view(0, n), train_indices=ROWS).train()[0] for n in (1, 2)]
    tests = [replace(source.view(0, n), test_indices=ROWS).test()[0] for n in (1, 2)]
    noises = [(after - before).flatten(1) for before, after in (whole, tests)]
    assert not torch.isclose(*noises, atol=1e-5).all(1).any()
    other = Stream(digits(), Partition(), Corrupt([2]), CLIENTS, 1, 9)
    assert not torch.equal(other.view(0, 2).train()[0], source.view(0, 2).train()[0])


def test_looks_come_on_top_of_each_other_and_go_one_by_one():
    noise = Corrupt([2, 4], kind="noise", strength=1.0)
    bright = Corrupt([3, 5], kind="shift", strength=0.25)
    source = stream(noise, bright, Rotate([3], ids=[1]))
    noisy = samples(source, 0, 2)[0]
    assert torch.equal(samples(source, 0, 3)[0], noisy + 0.25)
    assert torch.equal(samples(source, 0, 4)[0], samples(source, 0, 1)[0] + 0.25)
    assert all(same(samples(source, 0, 5), samples(source, 0, 1)))
    turned = samples(source, 1, 5)[0]
    assert torch.equal(turned, samples(source, 1, 1)[0].rot90(1, (2, 3)))
    assert source.timeline.concepts(5).tolist()[0] == source.timeline.concepts(1)[0]


def test_events_elsewhere_in_a_schedule_restore_what_another_did():
    there = Corrupt([2], kind="noise", strength=0.5)
    back = Corrupt(every=9, first=5, kind="noise", strength=0.5, labels=[3])
    source = stream(there, back)
    y = source.view(0, 5).labels
    now = samples(source, 0, 5)[0]
    assert torch.equal(now[y == 3], samples(source, 0, 1)[0][y == 3])
    assert torch.equal(now[y != 3], samples(source, 0, 2)[0][y != 3])
    restored = stream(there, Relabel([3], swaps=[[1, 2]]), Restore([4]))
    assert all(same(samples(restored, 0, 4), samples(restored, 0, 1)))


def test_some_features_of_a_table_fail_and_the_same_for_all():
    source = stream(Corrupt([2], kind="failure", strength=0.25, features=[0]))
    before, after = (source.view(1, n).train()[0].flatten(1) for n in (1, 2))
    dead = ((before != 0) & (after == 0)).any(0)
    assert not after[:, dead].any()
    assert torch.equal(before[:, ~dead], after[:, ~dead])
    other = source.view(2, 2).train()[0].flatten(1)
    assert not other[:, dead].any()
    assert 10 <= int(dead.sum()) <= 16


def test_classes_mean_something_else_where_they_look_different():
    source = stream(
        Corrupt([2], kind="shift", labels=[1], ids=[0]),
        Relabel([3], swaps=[[1, 2]], ids=[0, 1]),
    )
    assert not source.timeline.world(1).meanings.any()
    found = source.timeline.world(2).meanings
    assert found[:, 1].tolist() in ([0, 1, 1, 1], [1, 0, 0, 0])
    assert not np.delete(found, 1, axis=1).any()
    named = source.timeline.world(3).meanings
    assert len(set(named[:, 2].tolist())) == 3
    assert len(set(named[:, 1].tolist())) == 2


@settings("drift")
class Ink(Appearance):
    """Labels above another are written in more ink, not alike in each sample."""

    above: int = 4

    def look(self, x: FloatArray, y: int, rng: np.random.Generator) -> FloatArray:
        """Return one sample as it looks afterwards."""
        x += rng.random() * (y > self.above)
        return x


def test_an_own_function_changes_samples():
    source = stream(Ink([2, 4], above=6, ids=[0]))
    before, after = (source.view(0, n).train()[0] for n in (1, 2))
    y = source.view(0, 1).labels
    changed = (before != after).flatten(1).any(1).numpy()
    assert np.array_equal(changed, y > 6)
    added = (after - before).flatten(1)
    assert len(added.mean(1).unique()) > (y > 6).sum() / 2
    assert all(same(samples(source, 0, 4), samples(source, 0, 1)))
    again = stream(Ink([2], above=6))
    assert torch.equal(again.view(0, 2).train()[0], after)


@settings("drift")
class Mine(Appearance):
    """A look that is a function of the sample."""

    made: Any = None

    def look(self, x: FloatArray, y: int, rng: np.random.Generator) -> FloatArray:
        """Return what the function makes."""
        found: FloatArray = self.made(x)
        return found


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda x: x[..., :4], r"shape is \(1, 8, 4\)"),
        (lambda x: x.ravel(), r"shape is \(64,\)"),
        (lambda x: None, r"shape is \(\)"),
        (lambda x: "dark", "ValueError"),
        (lambda x: x.lacking, "AttributeError"),
        (lambda x: x * np.random.random(), "draws from np.random"),
        (lambda x: x * random.random(), "another look each time"),
        (lambda x: x * float(torch.rand(1)), "another look each time"),
        (lambda x: x * np.random.default_rng().random(), "another look each time"),
    ],
)
def test_a_look_of_one_s_own_that_is_wrong_is_told_before_a_run(made, said):
    with pytest.raises(ConfigError, match=rf"drift: Mine\.look.*{said}"):
        Mine([2], made=made).rehearse((1, 8, 8), 10)
    for fine in (lambda x: (255 * x).astype(np.uint8), lambda x: x - np.inf):
        Mine([2], made=fine).rehearse((1, 8, 8), 10)


@pytest.mark.parametrize(
    ("shape", "channels", "said"),
    [
        ((60,), [], r"drift=patterns .*images"),
        ((1, 8, 8), [0], r"drift\.channels=\[0\] .*in colour"),
        ((3, 8, 8), [0, 3], r"drift\.channels=\[0, 3\] .*in colour"),
    ],
)
def test_patterns_are_of_images_and_a_channel_is_one_of_several(shape, channels, said):
    with pytest.raises(ConfigError, match=said):
        DrawPatterns([2], channels=channels).check(shape)
    DrawPatterns([2], channels=[0, 2]).check((3, 8, 8))


@pytest.mark.parametrize("labels", [0, 4])
def test_each_client_draws_a_pattern_for_all_its_images_or_one_for_each_label(labels):
    drift = DrawPatterns([2], rotations=[0.0, 90.0], random_labels=labels)
    source = stream(drift)
    found = []
    for client in range(CLIENTS):
        turned: dict[int, set[bool]] = {}
        for part in ("train", "test"):
            x, y = getattr(source.view(client, 1), part)()
            after, _ = getattr(source.view(client, 2), part)()
            for label in y.unique():
                rows = y == label
                quarter = torch.rot90(x[rows], 1, (-2, -1))
                seen = [torch.equal(after[rows], each) for each in (x[rows], quarter)]
                assert sum(seen) == 1
                turned.setdefault(int(label), set()).add(seen[1])
        # Training and test samples of a label look alike.
        assert all(len(each) == 1 for each in turned.values())
        found.append({label for label, each in turned.items() if True in each})
    if labels:
        assert 1 < len(set.union(*found)) <= labels
    else:
        assert {len(each) for each in found} == {0, 10}


@limits(max_examples=20, deadline=None)
@given(
    labels=st.sampled_from([0, 2]),
    rotations=st.lists(st.sampled_from([0, 90, 180, 270, 360, 450]), min_size=1),
    channels=st.lists(st.integers(0, 1)),
    first=st.sampled_from([[0.0], [0.0, 180.0]]),
)
def test_clients_whose_images_look_alike_have_one_concept(
    labels, rotations, channels, first
):
    kind = {"rotations": rotations, "channels": channels, "random_labels": labels}
    rounds = [1, 2, 3, 5]
    again = Rotate([4], degrees=90.0, fraction=0.5)
    # With patterns of each label a turn of all is another: what labels share is seen.
    steps = [DrawPatterns(rounds, **kind), *([] if labels else [again])]
    drift = Schedule(steps={str(n): each for n, each in enumerate(steps)})
    partition = Partition(rotations=first[: 1 if labels else 2])
    line = Timeline(partition, drift.events, 12, 3, 0, 9)
    x = torch.rand(3, 3, 8, 8)
    names = np.arange(3)
    for round in (1, 2, 3, 4, 5):
        world = line.world(round)
        seen = []
        for client in range(12):
            turned = rotate(x, world.degrees[client]).clone()
            for label, look in enumerate(world.looks[client]):
                for each in world.shown[look]:
                    at = names[label : label + 1]
                    one = turned[at]
                    turned[at] = each.show(one, at, at, "train")
            seen.append(turned.numpy().tobytes())
        numbers = {}
        for concept, images in zip(line.concepts(round).tolist(), seen, strict=True):
            assert numbers.setdefault(images, concept) == concept
        assert len({*numbers.values()}) == len(numbers)


@settings("drift")
class Narrow(Appearance):
    """A look of another shape."""

    def look(self, x: FloatArray, y: int, rng: np.random.Generator) -> FloatArray:
        """Return half of the sample."""
        return x[..., :4]


def test_a_look_is_tried_when_settings_are_read():
    asked = [f"drift._target_={Narrow.__module__}.Narrow", "drift.rounds=[2]"]
    with pytest.raises(ConfigError, match=r"drift: Narrow\.look .*shape is \(1, 8, 4"):
        compose_config(asked)

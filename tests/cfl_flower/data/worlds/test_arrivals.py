"""Samples that arrive and are forgotten, by periods, buckets and times."""

import itertools

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.data.worlds.arrivals import LabelBuckets, Release
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.worlds.test_drift import timeline


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

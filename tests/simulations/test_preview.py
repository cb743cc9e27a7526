"""What a preview says."""

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.worlds.changes import Regroup, Relabel, Rotate
from cfl_flower.data.worlds.drift import Schedule
from cfl_flower.data.worlds.label_skew import LabelGroups
from cfl_flower.data.worlds.mixtures import Mixtures
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from simulations.periods import preview, shares
from simulations.preview import main


def test_who_changes_is_counted_from_one_period_to_the_next():
    # Half of eight clients swap two labels that all hold, then one turns its images.
    swap = Relabel([3], swaps=[[1, 2]], modulo=2, residues=[0])
    turn = Rotate([5], ids=[1])
    both = Schedule(steps={"swap": swap, "turn": turn})
    stream = Stream(Digits(), Partition(), both, 8, seed=0, rounds=9)
    found = preview(stream, 9)
    assert [(p.start, p.end) for p in found.periods] == [(1, 2), (3, 4), (5, 9)]
    assert [p.concepts for p in found.periods] == [1, 2, 3]
    assert [p.moved for p in found.periods] == [None, 4, 1]
    assert [p.changed for p in found.periods] == [None, 4, 1]
    assert all(p.sizes.sum() == 1257 for p in found.periods)
    first, second = found.periods[0].counts, found.periods[1].counts
    assert np.array_equal(first[1::2], second[1::2])
    assert np.array_equal(first[::2, [2, 1]], second[::2, [1, 2]])


def test_changes_after_the_run_are_told():
    stream = Stream(Digits(), LabelGroups(), Regroup([3, 30]), 10, seed=0, rounds=9)
    found = preview(stream, 9)
    assert found.notes == ["After the last round, so without effect: changes at 30"]
    assert len(found.periods) == 2


@pytest.mark.parametrize(
    "overrides",
    [
        ["drift=sudden", "partition=dirichlet", "drift.rounds=[5]"],
        ["drift=swap_all", "partition=few_classes", "rounds=30"],
        ["drift=mixture_redraw", "partition=mixtures", "rounds=30"],
        ["drift=label_buckets", "partition=iid", "rounds=130"],
        ["drift=gradual", "partition=iid"],
    ],
)
def test_a_preset_is_printed(overrides, capsys):
    assert main(overrides) == 0
    text = capsys.readouterr().out
    config = compose_config(overrides)
    assert f"drift {config.names['drift']}" in text
    assert "When it changes" in text
    assert "█" in text


def test_mixtures_are_counted_by_distribution():
    partition = Mixtures(clusters=3, sizes=[50, 90])
    stream = Stream(Digits(), partition, Regroup([3]), 8, seed=0, rounds=9)
    found = preview(stream, 9)
    assert found.names == ["0°", "120°", "240°"]
    for period in found.periods:
        mixture = stream.timeline.world(period.start).mixture
        assert np.allclose(shares(period.counts), mixture)

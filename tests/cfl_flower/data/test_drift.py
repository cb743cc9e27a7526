from __future__ import annotations

import itertools

import numpy as np
import pytest

from cfl_flower.data.drift import Regroup, period_of
from cfl_flower.data.partition import LabelGroups
from cfl_flower.errors import ConfigError


def test_a_change_holds_from_its_round_on() -> None:
    rounds = [1, 15, 16, 17, 30, 31, 99]
    assert [period_of([16, 31], round) for round in rounds] == [0, 0, 1, 1, 1, 2, 2]


def test_without_events_there_is_one_period() -> None:
    layouts = Regroup(rounds=[]).layouts(LabelGroups(), 10, 10, seed=0)
    assert len(layouts) == 1


def test_at_each_event_all_clients_go_to_groups_that_did_not_exist() -> None:
    layouts = Regroup(rounds=[3, 5]).layouts(LabelGroups(groups=5), 20, 10, seed=0)
    assert len(layouts) == 3
    for before, after in itertools.pairwise(layouts):
        known = {row.tobytes() for row in before.distributions}
        assert not known & {row.tobytes() for row in after.per_client}
        assert not set(before.concepts) & set(after.concepts)


def test_a_fraction_of_clients_changes_and_the_others_keep_their_concept() -> None:
    drift = Regroup(rounds=[3], fraction=0.3)
    before, after = drift.layouts(LabelGroups(groups=5), 20, 10, seed=1)
    stayed = before.concepts == after.concepts
    assert stayed.sum() == 14
    assert np.array_equal(before.per_client[stayed], after.per_client[stayed])


def test_the_schedule_follows_the_seed() -> None:
    one, again, other = (
        Regroup(rounds=[3]).layouts(LabelGroups(), 20, 10, seed)[1]
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one.per_client, again.per_client)
    assert not np.array_equal(one.per_client, other.per_client)


@pytest.mark.parametrize(
    "options", [{"rounds": [1]}, {"rounds": [5, 3]}, {"rounds": [3, 3]}]
)
def test_rounds_that_are_no_schedule_are_refused(options: dict) -> None:
    with pytest.raises(ConfigError, match=r"drift\.rounds=.*ascending"):
        Regroup(**options)


def test_a_fraction_above_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"drift\.fraction=1\.5"):
        Regroup(fraction=1.5)


@pytest.mark.parametrize(
    ("fraction", "moved"), [(0.0, 0), (0.25, 5), (0.38, 8), (1.0, 20)]
)
def test_as_many_clients_change_as_the_fraction_says(
    fraction: float, moved: int
) -> None:
    layouts = Regroup([2, 4, 6], fraction).layouts(LabelGroups(), 20, 10, seed=0)
    for before, after in itertools.pairwise(layouts):
        assert (before.concepts != after.concepts).sum() == moved


def test_later_events_do_not_change_earlier_periods() -> None:
    short = Regroup([3], 0.5).layouts(LabelGroups(), 20, 10, seed=0)
    long = Regroup([3, 5, 9], 0.5).layouts(LabelGroups(), 20, 10, seed=0)
    for one, other in zip(short, long, strict=False):
        assert np.array_equal(one.concepts, other.concepts)
        assert np.array_equal(one.distributions, other.distributions)


def test_a_label_group_keeps_its_number_over_the_whole_run() -> None:
    layouts = Regroup([3, 5, 9], 0.5).layouts(LabelGroups(), 20, 10, seed=0)
    rows = layouts[-1].distributions
    assert len(np.unique(rows, axis=0)) == len(rows) == 4 * 5
    for layout in layouts:
        assert np.array_equal(layout.distributions, rows[: len(layout.distributions)])


def test_other_clients_change_at_each_event() -> None:
    layouts = Regroup([3, 5], 0.5).layouts(LabelGroups(), 20, 10, seed=0)
    first, second = (
        before.concepts != after.concepts
        for before, after in itertools.pairwise(layouts)
    )
    assert first.tolist() != second.tolist()
    assert first[:10].sum() < 10

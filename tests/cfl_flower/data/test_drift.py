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

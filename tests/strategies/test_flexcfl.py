"""FlexCFL against its paper, step by step and as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from cfl_flower.config import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.inprocess import InProcessGrid
from strategies.flexcfl import group_updates, mean_directions, mix_between

Runner = Callable[..., Any]
FLEX = ["strategy=flexcfl", "clusters=3"]


def updates_of_groups(sizes: list[int], seed: int = 0) -> list[np.ndarray]:
    """Return updates around as many random directions as there are sizes."""
    rng = np.random.default_rng(seed)
    bases = rng.normal(size=(len(sizes), 200))
    return [
        (base + 0.2 * rng.normal(size=200)).astype(np.float32)
        for base, size in zip(bases, sizes, strict=True)
        for _ in range(size)
    ]


# Algorithm 3, step by step


@pytest.mark.parametrize("grouping", ["edc", "madc"])
@given(st.lists(st.integers(2, 7), min_size=2, max_size=4), st.integers(0, 99))
@settings(deadline=None, max_examples=15)
def test_updates_in_one_direction_are_one_group(
    grouping: str, sizes: list[int], seed: int
) -> None:
    updates = updates_of_groups(sizes, seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(seed)
    groups, directions = group_updates(updates, len(sizes), grouping, rng)
    assert adjusted_rand_score(truth, groups) == 1
    for group, direction in enumerate(directions):
        members = [updates[i] for i in np.flatnonzero(groups == group)]
        assert direction == pytest.approx(np.mean(members, axis=0), abs=1e-6)


def test_random_centres_are_updates_that_others_gather_around() -> None:
    updates = updates_of_groups([4, 4, 4])
    rng = np.random.default_rng(1)
    groups, directions = group_updates(updates, 3, "random", rng)
    assert all(any(np.array_equal(d, u) for u in updates) for d in directions)
    for update, group in zip(updates, groups, strict=True):
        cosines = [update @ d / np.linalg.norm(d) for d in directions]
        assert int(np.argmax(cosines)) == group


def test_groups_without_members_have_no_direction() -> None:
    alike = [np.float32([1, 2])] * 4
    rng = np.random.default_rng(0)
    groups, directions = group_updates(alike, 3, "edc", rng)
    assert groups.tolist() == [0, 0, 0, 0]
    assert [direction.tolist() for direction in directions] == [[1, 2], [0, 0], [0, 0]]
    assert len(mean_directions(alike[:1], np.array([2]), 4)) == 4


# Algorithm 2, line 19


def test_mixing_between_groups_by_hand() -> None:
    models = [np.float32([3, 4]), np.float32([0, 2]), np.float32([1, 0])]
    # Norms 5, 2 and 1: with eta 2 the others weigh 2/5, 1 and 2.
    summed = mix_between(models, 2.0, "sum")
    assert summed[0] == pytest.approx(np.array([3 + 0 + 2, 4 + 2 + 0]))
    convex = mix_between(models, 2.0, "convex")
    assert convex[0] == pytest.approx(np.array([3 + 2, 4 + 2]) / (1 + 1 + 2))
    assert convex[1] == pytest.approx(np.array([1.2 + 2, 1.6 + 2]) / (0.4 + 1 + 2))


@given(st.integers(0, 999), st.floats(0, 50))
def test_convex_mixing_never_lets_norms_grow(seed: int, rate: float) -> None:
    rng = np.random.default_rng(seed)
    models = list(rng.normal(size=(4, 9)).astype(np.float32))
    largest = max(np.linalg.norm(model) for model in models)
    for mixed in mix_between(models, rate, "convex"):
        assert np.linalg.norm(mixed) <= largest * (1 + 1e-5)


def test_without_a_rate_nothing_is_mixed() -> None:
    models = [np.float32([1, 2]), np.float32([0, 0])]
    for form in ("sum", "convex"):
        mixed = mix_between(models, 0.0, form)
        assert [each.tolist() for each in mixed] == [[1, 2], [0, 0]]


# The whole


def test_groups_follow_the_true_concepts_and_clients_migrate(run_small: Runner) -> None:
    # Whole groups swap their data: an old label group is where a client belongs now.
    drift = ["drift=swap_all", "drift.probability=1", "drift.every=null"]
    options = [*FLEX, *drift, "drift.rounds=[4]", "rounds=7"]
    options += ["strategy.local.epochs=5", "clients=24"]
    flexible = run_small(*options, folder="flexible")
    assert flexible.rounds[0]["ari"] == 1
    assert flexible.rounds[2]["drifted"] > 0
    assert flexible.rounds[2]["moved"] > 0
    assert flexible.rounds[3]["ari"] == 1
    static = run_small(*options, "strategy=fedgroup", folder="static")
    assert static.rounds[3]["ari"] < 1
    assert static.rounds[3]["accuracy"] < flexible.rounds[3]["accuracy"]
    assert static.rounds[2]["drifted"] is None


def test_bytes_are_those_of_the_protocol(run_small: Runner) -> None:
    # 12 clients, 6 in the group cold start; d = 650 floats; nothing shifts.
    options = [*FLEX, "strategy.alpha=2", "drift=none", "rounds=2"]
    run = run_small(*options)
    model, updates = 650 * 4, 6
    first, second = run.rounds
    # w_0 to all; 3 directions to everyone, now or with the first test; 6 models.
    assert first["bytes_down"] == (12 + 12 * 3 + 6) * model
    assert first["bytes_up"] == (updates + 6) * model
    assert second["bytes_down"] == second["bytes_up"] == 6 * model


def test_sketches_make_the_cold_start_cheap_and_find_the_same_groups(
    run_small: Runner,
) -> None:
    options = [*FLEX, "strategy.alpha=2", "drift=none", "rounds=1"]
    whole = run_small(*options, folder="whole")
    sketched = run_small(*options, "strategy.sketch=128", folder="sketched")
    saved = whole.rounds[0]["bytes_up"] - sketched.rounds[0]["bytes_up"]
    assert saved == 6 * (650 - 128) * 4
    assert sketched.rounds[0]["ari"] == whole.rounds[0]["ari"] == 1


def test_everyone_migrating_at_once_is_borne(run_small: Runner) -> None:
    drift = ["drift=swap_all", "drift.probability=1", "drift.first=2"]
    run = run_small(*FLEX, *drift, "strategy.shift.threshold=0", "rounds=4")
    assert run.rounds[1]["drifted"] > 6
    assert all(sum(row["cluster_sizes"]) == 12 for row in run.rounds)


def test_the_authors_distance_sees_no_other_labels(run_small: Runner) -> None:
    equal = [
        "partition.samples=60",
        "partition.purity=1",
        "partition.named=[[0,1],[2,3],[4,5]]",
    ]
    drift = ["drift=swap_all", "drift.probability=1", "drift.every=null"]
    options = [*FLEX, *equal, *drift, "drift.rounds=[3]", "rounds=3"]
    ours = run_small(*options, folder="ours")
    theirs = run_small(*options, "strategy.shift.metric=reference", folder="theirs")
    assert ours.rounds[1]["drifted"] > 0
    assert theirs.rounds[1]["drifted"] < ours.rounds[1]["drifted"]


def test_random_newcomers_stay_where_chance_puts_them(run_small: Runner) -> None:
    options = [*FLEX, "strategy.alpha=1", "strategy.newcomers=random", "drift=none"]
    run = run_small(*options, "rounds=1", "clients=24")
    assert run.rounds[0]["ari"] < 1
    # Three in the group cold start; nobody else gets a model but to train.
    assert run.rounds[0]["bytes_down"] == (3 + 24 * 3 + 6) * 650 * 4


def test_a_device_that_lost_the_directions_gets_them_again(
    run_small: Runner, tmp_path: Path
) -> None:
    folder = tmp_path / "run" / "clients" / ".common"

    class LosingGrid(InProcessGrid):
        def push_messages(self, messages: Any) -> list[str]:
            sent = super().push_messages(messages)
            for path in folder.glob("*.safetensors"):
                path.unlink()
            return sent

    drift = ["drift=swap_all", "drift.probability=1", "drift.every=null"]
    options = [*FLEX, *drift, "drift.rounds=[3]", "rounds=5"]
    run = run_small(*options, grid=LosingGrid())
    # The shift is seen at the end of round 2, and chosen by what comes with round 3.
    assert run.rounds[1]["drifted"] == 0
    assert run.rounds[2]["drifted"] > 0
    assert run.rounds[3]["ari"] == 1
    again = run_small(*options, folder="whole")
    assert again.rounds[1]["drifted"] == run.rounds[2]["drifted"]


def test_a_lost_choice_is_made_again(run_small: Runner) -> None:
    drift = ["drift=swap_all", "drift.probability=1", "drift.every=null"]
    options = [*FLEX, *drift, "drift.rounds=[3]", "rounds=8", "clients=24"]
    run = run_small(*options, "faults.drops=0.3")
    lost = {f["client"] for f in run.rounds[1]["failures"] if f["phase"] == "evaluate"}
    assert lost
    assert run.rounds[-1]["ari"] == 1


def test_discrepancy_is_measured_per_group(run_small: Runner) -> None:
    run = run_small(*FLEX, "drift=none", "participants=12")
    for row in run.rounds:
        assert len(row["discrepancy"]) == 3
        # A group of one is at no distance from its own mean.
        assert all(gap >= 0 for gap in row["discrepancy"])
        assert max(row["discrepancy"]) > 0


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["clusters=13"], ["clusters=13", "at most the 12 clients"]),
        (["clusters=0"], ["clusters=0", "at least 1"]),
        (["strategy.alpha=0.5"], ["strategy.alpha=0.5", "at least 1"]),
        (["strategy.mixing=-1"], ["strategy.mixing=-1", "at least 0"]),
        (["strategy.grouping=emd"], ["strategy.grouping=emd", "edc or madc or random"]),
        (["strategy.pretraining=0"], ["strategy.pretraining=0", "at least 1"]),
        (["strategy.sketch=-1"], ["strategy.sketch=-1", "at least 0"]),
    ],
)
def test_bad_settings_are_one_line(overrides: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        compose_config(["strategy=flexcfl", "clients=12", *overrides])
    assert all(word in str(caught.value) for word in words), caught.value

"""FlexCFL against its paper, step by step and as a whole."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from cfl_flower.communication.results import Results
from cfl_flower.engine.round_measures import note_training
from cfl_flower.errors import NoValidResultError
from cfl_flower.types import Plan, Result
from strategies.flexcfl import FlexCFL, group_updates, mean_directions, mix_between
from tests.conftest import open_method

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
def test_updates_in_one_direction_form_one_group(grouping, sizes, seed):
    updates = updates_of_groups(sizes, seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(seed)
    groups, directions = group_updates(updates, len(sizes), grouping, rng)
    assert adjusted_rand_score(truth, groups) == 1
    for group, direction in enumerate(directions):
        members = [updates[i] for i in np.flatnonzero(groups == group)]
        assert direction == pytest.approx(np.mean(members, axis=0), abs=1e-6)


def test_random_centres_are_single_updates():
    updates = updates_of_groups([1, 1, 1])
    groups, directions = group_updates(updates, 3, "random", np.random.default_rng(1))
    assert groups.tolist() == [0, 1, 2]
    assert all(map(np.array_equal, directions, updates))


def test_groups_without_members_have_no_direction():
    alike = [np.float32([1, 2])] * 4
    rng = np.random.default_rng(0)
    groups, directions = group_updates(alike, 3, "edc", rng)
    assert groups.tolist() == [0, 0, 0, 0]
    assert [direction.tolist() for direction in directions] == [[1, 2], [0, 0], [0, 0]]
    assert len(mean_directions(alike[:1], np.array([2]), 4)) == 4


# Algorithm 2, line 19


def test_mixing_between_groups_by_hand():
    models = [np.float32([3, 4]), np.float32([0, 2]), np.float32([1, 0])]
    # Norms 5, 2 and 1: with eta 2 the others weigh 2/5, 1 and 2.
    summed = mix_between(models, 2.0, "sum")
    assert summed[0] == pytest.approx(np.array([3 + 0 + 2, 4 + 2 + 0]))
    convex = mix_between(models, 2.0, "convex")
    assert convex[0] == pytest.approx(np.array([3 + 2, 4 + 2]) / (1 + 1 + 2))
    assert convex[1] == pytest.approx(np.array([1.2 + 2, 1.6 + 2]) / (0.4 + 1 + 2))


# The whole


def test_groups_follow_the_true_concepts_and_clients_migrate(run_small):
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


def test_all_clients_can_migrate_at_once(run_small):
    drift = ["drift=regroup", "drift.rounds=[3]"]
    run = run_small(*FLEX, *drift, "strategy.shift.threshold=0", "rounds=4")
    assert [row["drifted"] for row in run.rounds] == [0, 12, 0, 0]
    assert all(sum(row["cluster_sizes"]) == 12 for row in run.rounds)
    assert run.rounds[1]["moved"] >= 6


def test_random_newcomers_keep_their_random_group(run_small):
    options = [*FLEX, "strategy.alpha=1", "strategy.newcomers=random", "drift=none"]
    run = run_small(*options, "rounds=1", "clients=24")
    assert run.rounds[0]["ari"] < 1
    # The directions for a migration, and a model to train.
    assert run.rounds[0]["bytes_down"] == (24 * 3 + 6) * 650 * 4


# What the results change, on models of one number each


def flexcfl(tmp_path: Path, *overrides: str) -> FlexCFL:
    """Return FlexCFL with four clients in groups 0, 0, 1 and 2, by hand."""
    options = [*FLEX, "clients=4", "participants=4", "drift=none", *overrides]
    strategy: FlexCFL = open_method(tmp_path, *options)
    state = strategy.state
    state.clients, state.clusters = [0, 1, 2, 3], np.array([0, 0, 1, 2])
    state.models = [np.float32([value]) for value in (1, 2, 4)]
    return strategy


def trained(*pairs: tuple[int, int, float]) -> list[Result]:
    return [Result(client, n, [np.float32([value])]) for client, n, value in pairs]


def test_a_groups_model_is_the_mean_of_its_participants_by_samples(tmp_path):
    strategy = flexcfl(tmp_path)
    strategy.absorb_train(1, trained((0, 30, 10.0), (1, 10, 2.0), (2, 5, 7.0)))
    assert [float(model[0]) for model in strategy.state.models] == [8.0, 7.0, 4.0]


def test_directions_are_sent_once_and_charged_once(tmp_path):
    strategy = flexcfl(tmp_path)
    strategy.state.directions = [np.zeros(5, np.float32), np.ones(5, np.float32)]
    strategy.state.holding = np.array([True, True, False, False])
    name = strategy.candidates_config["directions"]
    assert strategy.receivers().tolist() == [False, False, True, True]
    # Client 1 lost the directions, and client 3 did not answer.
    results = [Result(0, 1), Result(1, 1, metrics={"lost": True}), Result(2, 1)]
    assert strategy.count_candidates(Results(results)) == 2
    assert strategy.receivers().tolist() == [False, True, False, True]
    other = flexcfl(tmp_path)
    other.state.directions = strategy.state.directions[::-1]
    assert name != other.candidates_config["directions"]


@pytest.mark.parametrize("form", ["convex", "sum"])
def test_only_groups_that_were_trained_are_mixed(form, tmp_path):
    strategy = flexcfl(tmp_path, "strategy.mixing=4", f"strategy.mixing_form={form}")
    strategy.absorb_train(1, trained((0, 1, 8.0), (2, 1, 7.0)))
    results = trained((0, 1, 8.0), (2, 1, 7.0))
    note_training(strategy.engine.context, results)
    by_hand = {
        "convex": [(8 + 4) / (1 + 4 / 7), (7 + 4) / (1 + 4 / 8), 4],
        "sum": [8 + 4, 7 + 4, 4],
    }[form]
    found = [float(model[0]) for model in strategy.state.models]
    assert found == pytest.approx(by_hand)
    # Equation 3 is about the models after mixing.
    gaps = [abs(8 - by_hand[0]), abs(7 - by_hand[1])]
    assert strategy.run.record.measures["discrepancy"] == pytest.approx(np.mean(gaps))


def start(
    strategy: FlexCFL,
    updates: dict[int, float],
    monkeypatch: pytest.MonkeyPatch,
    clients: int = 4,
) -> list[list[int]]:
    """Start groups from clients that answer with constants; return who was asked.

    Client 2 has no samples.
    """
    strategy.state = strategy.initial_state()
    asked: list[list[int]] = []

    def answer(round: int, plan: Plan) -> list[Result]:
        asked.append([int(task.client) for task in plan.tasks])
        heard = [client for client in asked[-1] if client in updates]
        (length,) = plan.reply
        return [
            Result(client, 5, [np.full(length, updates[client], np.float32)])
            for client in heard
        ]

    monkeypatch.setattr(strategy.run, "ask", answer)
    hello = [Result(client, 9 * (client != 2)) for client in range(clients)]
    strategy.start_groups(1, hello, np.random.default_rng(0))
    return asked


def test_groups_start_from_the_initial_model_and_their_direction(tmp_path, monkeypatch):
    strategy = flexcfl(tmp_path, "clusters=2")
    asked = start(strategy, {0: 1.0, 1: 3.0, 3: -1.0}, monkeypatch)
    assert asked == [[0, 1, 3]]
    state, initial = strategy.state, strategy.run.initial_model()
    assert state.clients == [0, 1, 3]
    assert state.clusters.tolist() == [0, 0, 1]
    assert state.models[0] == pytest.approx(initial + 2)
    assert state.models[1] == pytest.approx(initial - 1)
    assert state.holding.tolist() == [False] * 3


def test_others_replace_those_that_do_not_answer_at_first(tmp_path, monkeypatch):
    strategy = flexcfl(tmp_path, "clusters=1", "strategy.alpha=1")
    asked = start(strategy, {3: 1.0}, monkeypatch)
    # One by one, in a random order, until one answers; never who has no samples.
    assert asked[-1] == [3]
    assert {client for some in asked for client in some} <= {0, 1, 3}
    assert strategy.state.clients == [3]


def test_random_centres_are_as_many_as_groups(tmp_path, monkeypatch):
    strategy = flexcfl(tmp_path, "clusters=3", "strategy.grouping=random")
    answers = {client: float(client) for client in (1, 4, 5, 6, 7)}
    asked = start(strategy, answers, monkeypatch, clients=8)
    assert len(asked) > 1, "somebody did not answer"
    state = strategy.state
    assert sorted(state.clusters.tolist()) == [0, 1, 2]
    assert len(state.models) == len(state.directions) == 3


def test_a_cold_start_without_samples_is_one_line(tmp_path, monkeypatch):
    strategy = flexcfl(tmp_path, "clusters=1")
    monkeypatch.setattr(strategy.run, "ask", lambda *_: [])
    hello = [Result(client, 0) for client in range(3)]
    with pytest.raises(NoValidResultError, match="nobody has samples"):
        strategy.start_groups(1, hello, np.random.default_rng(0))

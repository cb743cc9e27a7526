"""Fielding's representations by a shared model, triggers, learned tau and presets."""

from pathlib import Path

import numpy as np
import pytest

from cfl_flower.errors import ConfigError
from simulations.engines.inprocess import InProcessGrid
from strategies.fielding import Fielding
from strategies.fielding.representations import Combined
from tests.conftest import open_method


def by_shared_model(representation: str, *settings: str) -> list[str]:
    """Return the overrides of a representation by a small shared model."""
    shared = ["shared.epochs=2", "shared.samples=20", *settings]
    return [
        "strategy=fielding",
        f"strategy/representation={representation}",
        *(f"strategy.representation.{each}" for each in shared),
    ]


def fielding(folder: Path, *overrides: str) -> Fielding:
    found: Fielding = open_method(folder, "clients=4", "participants=2", *overrides)
    return found


def learn(learner: Fielding, round: int, accuracy: float | None, drift: bool) -> float:
    """Let a round pass, and return the threshold that decides its drift."""
    learner.run.record.round, learner.run.record.accuracy = round, accuracy
    learner.learn_threshold(drift)
    learned = learner.settings.threshold_learning
    deciding = learned.in_force(learner.settings.threshold, learner.state.trials)
    assert learner.run.record.measures["threshold"] == deciding
    return float(deciding)


def test_thresholds_take_turns_at_drifts_and_a_better_one_stays(tmp_path):
    learning = "strategy.threshold_learning"
    options = ["strategy/threshold_learning=trials", f"{learning}.rounds=2"]
    learner, rng = fielding(tmp_path, *options), np.random.default_rng(0)
    assert learn(learner, 1, 0.9, drift=False) == 1 / 3
    tried, round = [], 1
    for _ in range(10):
        deciding = learn(learner, round + 1, 0.9, drift=True)
        tried.append(deciding)
        # Rounds that are not tested count for nothing.
        learn(learner, round + 2, None, drift=False)
        after = 0.8 if deciding == 1 / 2 else 0.5 + rng.normal(0, 0.01)
        assert learn(learner, round + 3, after, drift=False) == deciding
        learn(learner, round + 4, after, drift=False)
        round += 4
    forth = [0.0, 1 / 6, 1 / 3, 1 / 2, 2 / 3]
    assert tried == [*forth, *forth[::-1]]
    assert learn(learner, round + 1, 0.9, drift=True) == 1 / 2


def test_the_pairwise_trigger_reclusters_wide_clusters(run_small):
    run = run_small("strategy/trigger=pairwise")
    assert run.rounds[1]["reclustered"]
    assert run.rounds[1]["delta"] == 0.1
    delta = "strategy.trigger.delta=2"
    wide = run_small("strategy/trigger=pairwise", delta, folder="wide")
    assert not any(row["reclustered"] for row in wide.rounds)


@pytest.mark.parametrize(
    ("representation", "distance", "sees"),
    [
        ("label_histogram", "l1", False),
        ("embedding", "l2", True),
        ("gradient", "cosine", True),
        ("combined", "l2", True),
    ],
)
def test_embeddings_see_a_covariate_shift(representation, distance, sees, run_small):
    options = ["strategy=fielding"]
    if representation != "label_histogram":
        options = by_shared_model(representation)
    rotation = ["drift=rotate", "drift.rounds=[3]", "drift.fraction=0.5"]
    run = run_small(*options, f"strategy.distance={distance}", *rotation, "rounds=3")
    drifted = [row["drifted"] for row in run.rounds]
    assert drifted == [0, 6 if sees else 0, 0]
    # A shared model goes down once, with the hello, and is not a round's model.
    trained = 6 * 4 * 650
    shared = 0 if representation == "label_histogram" else 12 * 4 * 650
    down = [row["bytes_down"] for row in run.rounds]
    assert down == [trained + shared, trained, trained]


HALF = ["drift.rounds=[3]", "drift.fraction=0.5"]
KINDS = {
    "covariate": ["drift=rotate", *HALF, "clients=20", "partition.groups=5"],
    "concept": [
        "drift=concept_half",
        "drift.random_swaps=4",
        *HALF,
        "partition.purity=0.8",
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_and_gradient_together_follow_every_kind_of_drift(kind, run_small):
    """Reports alone are not enough: the clusters have to follow the concepts."""
    options = ["clients=24", "participants=12", "rounds=6", *KINDS[kind]]
    labels = run_small(*options)
    # Rotated images are distinguished by a better model than two passes give.
    better = ["shared.epochs=10"] if kind == "covariate" else []
    both = [*by_shared_model("combined", *better), "strategy.distance=l2"]
    combined = run_small(*both, *options, folder="combined")
    assert combined.rounds[1]["ari"] == 1
    assert combined.rounds[1]["reclustered"]
    before, after = labels.rounds[-1], combined.rounds[-1]
    assert after["ari"] > before["ari"]
    assert after["accuracy"] > before["accuracy"]


def test_a_sketch_is_sent_instead_of_the_gradient(run_small):
    options = ["strategy.distance=cosine", "rounds=1"]
    whole = run_small(*by_shared_model("gradient"), *options)
    sketched = by_shared_model("gradient", "sketch=64")
    small = run_small(*sketched, *options, folder="small")
    saved = whole.rounds[0]["bytes_up"] - small.rounds[0]["bytes_up"]
    # At the hello and, as the drift of round 3 is not yet there, never again.
    assert saved == 12 * 4 * (650 - 64)
    assert small.rounds[0]["ari"] == 1


def test_a_tolerated_change_of_labels_is_no_drift_but_one_of_the_gradient_is():
    last = np.array([0.5, 0.5, 1.0, 0.0], np.float32)
    for now, changed in (
        ([0.4, 0.6, 1, 0], False),
        ([0.3, 0.7, 1, 0], True),
        ([0.5, 0.5, 0.8, 0.6], True),
    ):
        gone = np.array(now, np.float32)
        assert (Combined().gap(last, gone, "l2", classes=2) > 0.3) == changed


def test_the_shared_model_can_be_a_file(run_small, tmp_path):
    model = np.random.default_rng(0).normal(size=650).astype(np.float32)
    np.save(tmp_path / "shared.npy", model)
    path = f"strategy.representation.shared.path={tmp_path}/shared.npy"
    options = ["strategy/representation=gradient", "strategy.distance=cosine"]
    devices = InProcessGrid([{"client-id": client} for client in range(12)])
    run = run_small(*options, path, "rounds=2", grid=devices)
    assert run.rounds[-1]["num_clusters"] > 1


@pytest.mark.parametrize("shape", [(3,), (650, 1)])
def test_a_file_of_another_network_is_one_line(shape, tmp_path):
    np.save(tmp_path / "shared.npy", np.zeros(shape, np.float32))
    path = f"strategy.representation.shared.path={tmp_path}/shared.npy"
    with pytest.raises(ConfigError, match="650 float32 numbers"):
        fielding(tmp_path, "strategy/representation=embedding", path)


def test_a_shared_model_that_diverges_names_itself(run_small):
    rate = "shared.learning_rate=1e+38"
    with pytest.raises(ConfigError, match=r"e\+38 is not allowed; .*diverged") as error:
        run_small(*by_shared_model("gradient", rate))
    assert f"strategy.representation.{rate}" in str(error.value)


def test_devices_without_data_here_need_a_file(run_small):
    devices = InProcessGrid([{"client-id": client} for client in range(12)])
    with pytest.raises(ConfigError, match="no data here to pre-train"):
        run_small("strategy/representation=embedding", grid=devices)

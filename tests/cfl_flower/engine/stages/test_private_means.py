"""Noisy means: what one participant can change, how much noise, what a method sees."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from cfl_flower.communication.partial_sums import add_result
from cfl_flower.communication.results import Results
from cfl_flower.engine.stages.private_means import noisy_mean, release_means
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.privacy.accounting import epsilon_of
from cfl_flower.privacy.settings import CentralPrivacy
from cfl_flower.seeding import generator
from cfl_flower.types import Plan, Result, SumSpec, Task, Vector

ALMOST_NO_NOISE = CentralPrivacy(clip=1.0, noise_multiplier=1e-9)
MODELS = [np.float32([0, 0]), np.float32([10, 10])]
CLUSTERS = {0: 0, 1: 1, 2: 0, 3: 0}
SENT = {0: [3, 4], 1: [10.5, 10], 2: [-0.5, 0], 3: [0, 0.25]}


def draw(purpose: str) -> np.random.Generator:
    return generator(0, purpose, 1)


def released(
    sent: dict[int, list[float]],
    privacy: CentralPrivacy = ALMOST_NO_NOISE,
    spec: SumSpec | None = None,
) -> Results:
    tasks = [Task(client, (cluster,)) for client, cluster in CLUSTERS.items()]
    plan = Plan(tasks, MODELS, {}, (2,), spec)
    results = Results(Result(c, 5, [np.float32(a)]) for c, a in sent.items())
    if spec is not None:
        for place, result in enumerate(results):
            add_result(results.sums, tasks[result.client], result, spec)
            results[place] = replace(result, arrays=[])
    return release_means(results, plan, privacy, draw)


def test_a_method_finds_the_mean_of_clipped_updates_in_the_place_of_each_model():
    found = {result.client: result.arrays[0] for result in released(SENT)}
    # ([0.6, 0.8] + [-0.5, 0] + [0, 0.25]) / 3
    for client in (0, 2, 3):
        assert found[client] == pytest.approx([0.1 / 3, 0.35], abs=1e-6)
    assert found[1] == pytest.approx([10.5, 10])
    # So any mean of some of them, with any weights, is the noisy mean itself.
    some = mean_model([found[0], found[3]], [1.0, 7.0])
    assert some.tolist() == found[2].tolist()


@pytest.mark.parametrize("client", CLUSTERS)
def test_nobody_changes_its_clusters_sum_by_more_than_the_bound(client):
    neighbour = SENT | {client: MODELS[CLUSTERS[client]].tolist()}
    for one, other in zip(released(SENT), released(neighbour), strict=True):
        count = 3 if CLUSTERS[int(one.client)] == 0 else 1
        change = count * np.linalg.norm(one.arrays[0] - other.arrays[0])
        same = CLUSTERS[int(one.client)] == CLUSTERS[client]
        assert change <= (1 + 1e-5 if same else 1e-6)


def test_sums_of_workers_give_the_same_means():
    # Workers add up what clients have clipped.
    clipped = SENT | {0: [0.6, 0.8]}
    sums = released(clipped, spec=SumSpec((0,), by_samples=False)).sums
    singly = {CLUSTERS[int(r.client)]: r.arrays[0] for r in released(clipped)}
    assert set(sums) == {(0, 0), (0, 1)}
    for cluster, mean in singly.items():
        assert sums[0, cluster].mean() == pytest.approx(mean, abs=1e-6)


def test_noise_has_its_deviation_once_per_mean_and_repeats_with_the_content():
    received = np.zeros(20_000, np.float32)
    total = np.zeros(20_000)
    one = noisy_mean(received, total, 4, 2.0, draw)
    assert one.std() == pytest.approx(2.0 / 4, rel=0.03)
    assert abs(one.mean()) < 0.02
    assert noisy_mean(received, total, 4, 2.0, draw).tolist() == one.tolist()
    # Another content has another noise, or their difference would have none.
    total[0] = 1e-3
    other = noisy_mean(received, total, 4, 2.0, draw)
    assert np.corrcoef(one, other)[0, 1] == pytest.approx(0, abs=0.03)
    found = released(SENT, CentralPrivacy(clip=1.0, noise_multiplier=2.0))
    noise = [
        r.arrays[0] - q.arrays[0] for r, q in zip(found, released(SENT), strict=True)
    ]
    assert noise[0] == pytest.approx(noise[2], abs=1e-6)
    assert abs(noise[0] - noise[1]).max() > 1e-3


def attack(contribution: float, rounds: int, trials: int, bound: float) -> Vector:
    """Return what an attacker sees, added up over rounds, of independent trials.

    Each number of the model is a trial: it sees one number of the mean of three, of
    whom one contributes, and knows what the two others send.
    """
    seen = np.zeros(trials, np.float32)
    for round in range(rounds):
        total = np.full(trials, contribution + 0.3)
        name = f"{contribution}/{round}"
        mean = noisy_mean(
            np.zeros(trials, np.float32),
            total,
            3,
            1.5 * bound,
            lambda purpose, name=name: draw(f"{name}/{purpose}"),
        )
        seen += 3 * mean - np.float32(0.3)
    return seen


def test_an_attack_finds_no_larger_epsilon_than_the_account():
    pytest.importorskip("dp_accounting")
    bound, rounds, trials, delta, multiplier = 2.0, 3, 400_000, 1e-3, 1.5
    epsilon = epsilon_of(rounds * multiplier**-2, delta)
    # The test of Neyman and Pearson for that epsilon.
    deviation = math.sqrt(rounds) * multiplier * bound
    mu = rounds * bound / deviation
    threshold = deviation * (epsilon / mu + mu / 2)
    there = int((attack(bound, rounds, trials, bound) > threshold).sum())
    absent = int((attack(0.0, rounds, trials, bound) > threshold).sum())
    # Clopper and Pearson's bounds, each missed with probability 1e-6.
    least = beta.ppf(1e-6, there, trials - there + 1)
    most = beta.ppf(1 - 1e-6, absent + 1, trials - absent)
    empirical = math.log((least - delta) / most)
    assert 0.7 * epsilon < empirical < epsilon

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.data.worlds.allocation import divide_once, draw


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(st.integers(0, 99), st.integers(1, 12), st.integers(0, 300))
def test_every_sample_is_allocated_to_exactly_one_client(seed, clients, samples):
    labels = rng(seed).integers(0, 4, samples)
    demand = rng(seed + 1).dirichlet(np.full(4, 0.3), clients)
    hands = divide_once(labels, demand, rng(seed))
    assert len(hands) == clients
    assert sorted(np.concatenate(hands).tolist()) == list(range(samples))


def test_drawn_samples_follow_the_demand_and_may_repeat():
    labels = np.array([2, 0, 1, 0])
    (hand,) = draw(labels, np.array([[0.25, 0, 0.75]]), np.array([4000]), rng())
    assert len(hand) == 4000
    shares = np.bincount(labels[hand], minlength=3) / 4000
    assert shares == pytest.approx([0.25, 0, 0.75], abs=0.03)
    assert set(hand.tolist()) == {0, 1, 3}


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_label_without_samples_is_drawn_by_nobody(absent):
    labels = np.repeat([label for label in range(3) if label != absent], 5)
    demand = np.array([[0.5, 0.3, 0.2], np.eye(3)[absent]])
    some, only = draw(labels, demand, np.array([200, 200]), rng())
    present = demand[0] * (np.arange(3) != absent)
    shares = np.bincount(labels[some], minlength=3) / 200
    assert shares == pytest.approx(present / present.sum(), abs=0.1)
    # Who wants nothing that is there takes what is there.
    assert set(labels[only].tolist()) == set(labels.tolist())


@given(st.integers(0, 99), st.integers(1, 9), st.integers(0, 200))
def test_shares_of_a_label_are_off_by_rounding_only(seed, clients, samples):
    demand = rng(seed).dirichlet(np.ones(clients))[:, None]
    hands = divide_once(np.zeros(samples, int), demand, rng(seed))
    sizes = np.array([len(hand) for hand in hands])
    assert (abs(sizes - samples * demand[:, 0]) <= 1 + 1e-6).all()


def test_which_samples_a_client_gets_is_drawn():
    hands = [divide_once(np.zeros(50, int), np.ones((2, 1)), rng(s))[0] for s in (0, 1)]
    assert len(hands[0]) == len(hands[1]) == 25
    assert hands[0].tolist() != hands[1].tolist() != list(range(25))


def test_rounding_favours_no_client_over_all_labels():
    # One sample of each of 400 labels for two clients: half each, not all to one.
    hands = divide_once(np.arange(400), np.ones((2, 400)), rng())
    assert len(hands[0]) == pytest.approx(200, abs=50)


def test_a_minimum_comes_first_and_the_rest_follows_the_demand():
    labels = np.zeros(100, int)
    hands = divide_once(labels, np.array([[0.0], [1.0], [3.0]]), rng(), minimum=10)
    assert [len(hand) for hand in hands] == [0, 30, 70]
    # 60 for each of two clients would be more than half of 100 samples: 25 each.
    hands = divide_once(labels, np.array([[1.0], [0.001]]), rng(), minimum=60)
    assert [len(hand) for hand in hands] == [75, 25]

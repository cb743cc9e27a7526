import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.mixtures import DrawnSamples, Mixtures, apportion
from tests.cfl_flower.data.worlds.test_partition import allocate_again


def zeros(clients: int) -> np.ndarray:
    return np.zeros(clients, np.int64)


def plain_pool(size: int) -> Pool:
    x = np.zeros((size, 1), np.float32)
    return Pool.from_arrays({"x": x, "y": np.arange(size) % 10})


@pytest.mark.parametrize(
    ("shares", "total", "parts"),
    [
        ([0.5, 0.3, 0.2], 4, [2, 1, 1]),
        ([0.5, 0.3, 0.2], 10, [5, 3, 2]),
        ([1.0, 0.0], 7, [7, 0]),
        ([0.25] * 4, 0, [0] * 4),
    ],
)
def test_whole_numbers_are_split_by_shares(shares, total, parts):
    assert apportion(np.array([shares]), np.array([total])).tolist() == [parts]


@given(st.integers(0, 99), st.integers(2, 6), st.integers(0, 3))
def test_sizes_and_main_shares_of_mixtures_are_the_papers(seed, clusters, draw):
    partition = Mixtures(clusters=clusters)
    main = partition.mains(60, seed)
    counts = partition.counts(main, zeros(60) + draw, seed)
    sizes = counts.sum(axis=1)
    assert ((sizes >= 500) & (sizes <= 2000)).all()
    shares = counts[np.arange(60), main] / sizes
    assert ((shares >= 0.4) & (shares <= 0.9)).all()
    assert shares.max() - shares.min() > 0.2
    assert np.ptp(np.bincount(main)) <= 1


def test_a_mixture_of_two_sizes_and_one_share_is_what_it_says():
    partition = Mixtures(clusters=3, sizes=[10, 10], main=[0.6, 0.6], others=1e9)
    counts = partition.counts(np.array([0, 1, 2]), zeros(3), seed=0)
    assert counts.tolist() == [[6, 2, 2], [2, 6, 2], [2, 2, 6]]
    few = Mixtures(clusters=2, samples=7).counts(np.array([0, 1]), zeros(2), seed=0)
    assert few.sum(axis=1).tolist() == [7, 7]


def test_a_draw_follows_from_the_client_and_how_often_it_drew_alone():
    partition, main = Mixtures(), np.array([0, 1, 2, 3])
    draws = np.array([2, 0, 1, 2])
    mixed = partition.counts(main, draws, seed=5)
    for client, often in enumerate(draws):
        alone = partition.counts(main, zeros(4) + often, seed=5)
        assert mixed[client].tolist() == alone[client].tolist()
        # Further clients change nothing.
        few = partition.counts(main[: client + 1], draws[: client + 1], seed=5)
        assert few[client].tolist() == mixed[client].tolist()
    assert partition.counts(main, draws, seed=6).tolist() != mixed.tolist()
    one, again, other = (
        DrawnSamples(99, mixed, draws, "deal", 5)[client].tolist()
        for client in (0, 0, 3)
    )
    assert one == again != other


def test_training_and_testing_follow_the_same_mixture():
    for tests in (300, None):
        partition = Mixtures(test_samples=tests)
        world = partition.begin(20, 10, seed=1)
        pools = plain_pool(700), plain_pool(90)
        hands = partition.allocate_samples(pools, world.allocations[0], 1, None)
        for client in range(20):
            train, test = (
                np.bincount(hand[client] // len(pool.labels), minlength=4)
                for hand, pool in zip(hands, pools, strict=True)
            )
            assert test.sum() == (tests or train.sum())
            assert train / train.sum() == pytest.approx(world.mixture[client])
            wanted = world.mixture[client] * test.sum()
            assert test == pytest.approx(wanted, abs=1 + 1e-6)


def test_a_new_deal_of_mixtures_keeps_the_main_distribution():
    first, second = allocate_again(Mixtures(), 20, 10, times=2)
    assert first.layout.groups.tolist() == second.layout.groups.tolist()
    assert second.draws.tolist() == [1] * 20
    assert (first.layout.mixture != second.layout.mixture).any(axis=1).all()  # type: ignore[union-attr]

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.arrivals import Release
from cfl_flower.data.worlds.changes import Regroup
from cfl_flower.data.worlds.drift import Drift
from cfl_flower.data.worlds.label_skew import Dirichlet, FewClasses, LabelGroups
from cfl_flower.data.worlds.mixtures import Mixtures
from cfl_flower.data.worlds.natural import Natural
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.data.worlds.view import rotate
from cfl_flower.errors import ConfigError

CLIENTS = 12


def changed(drift: Drift, partition: Partition | None = None) -> Stream:
    groups = partition or LabelGroups(groups=5)
    return Stream(Digits(), groups, drift, CLIENTS, seed=3, rounds=200)


def test_samples_stay_held_out_when_others_follow():
    partition = Partition(validation=0.3)
    fewer = partition.held_out(100, seed=5)
    assert fewer.tolist() == partition.held_out(150, seed=5)[:100].tolist()
    assert fewer.tolist() != partition.held_out(100, seed=6).tolist()


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.9])
def test_the_few_who_drift_follow_their_concept_and_keep_their_sizes(fraction):
    source = changed(Regroup([3, 5], fraction=fraction))
    for before, after in ((2, 3), (4, 5)):
        demand = source.timeline.world(after).demand
        concepts = map(source.timeline.concepts, (before, after))
        moved = np.flatnonzero(np.not_equal(*concepts))
        assert len(moved) == round(fraction * CLIENTS)
        for client in moved:
            old, new = source.view(client, 1), source.view(client, after)
            assert len(new.train_indices) == len(old.train_indices)
            assert len(new.test_indices) == len(old.test_indices)
            shares = np.bincount(new.labels, minlength=10) / len(new.labels)
            assert abs(shares - demand[client]).sum() < 0.4


@pytest.mark.parametrize("fraction", [1.0, 0.25])
def test_drawn_data_follow_the_true_concept_of_the_few_who_drift(fraction):
    partition = LabelGroups(groups=5, samples=400, test_samples=400)
    source = changed(Regroup([3, 5], fraction=fraction), partition)
    for round in (2, 3, 5):
        wanted = source.timeline.world(round).demand
        for client in range(CLIENTS):
            view = source.view(client, round)
            assert len(np.unique(view.train_indices)) < len(view.train_indices) == 400
            for labels in (view.labels, view.test_pool.labels[view.test_indices]):
                shares = np.bincount(labels, minlength=10) / 400
                assert shares == pytest.approx(wanted[client], abs=0.12)


def test_tests_on_labels_are_all_test_samples_of_those_that_are_trained_on():
    partition = LabelGroups(groups=5, purity=1, labels=2, tests="labels", shifts=[0, 3])
    source = Stream(Digits(), partition, Regroup([]), CLIENTS, 0, rounds=9)
    pool = source.view(0, 1).test_pool
    for client in range(CLIENTS):
        own = source.view(client, 1)
        held = np.unique(own.labels)
        view = own.everything()
        assert len(held) == 2
        # As it calls them.
        names = own.relabel[pool.labels]
        assert (
            view.test_indices.tolist() == np.flatnonzero(np.isin(names, held)).tolist()
        )
        assert set(own.test_indices) < set(view.test_indices)


def test_a_client_without_samples_has_an_empty_view():
    # 1,257 training samples for 2,000 clients.
    source = Stream(Digits(), LabelGroups(), Regroup([]), 2000, 0, rounds=9)
    views = [source.view(client, 1) for client in range(2000)]
    empty = next(view for view in views if len(view.labels) == 0)
    x, y = empty.train()
    assert x.shape == (0, 1, 8, 8)
    assert y.shape == (0,)


def test_rotated_and_renamed_samples_are_the_pools_turned_and_renamed():
    source = changed(Regroup(), Partition(rotations=[0, 90], shifts=[0, 3]))
    world = source.timeline.world(1)
    for client in range(4):
        view = source.view(client, 1)
        for (x, y), pool, rows in (
            (view.train(), view.train_pool, view.train_indices),
            (view.test(), view.test_pool, view.test_indices),
        ):
            turns = int(world.degrees[client] // 90)
            assert torch.equal(x, torch.rot90(pool.x[rows], turns, (-2, -1)))
            shift = world.relabel[client, 0]
            assert y.tolist() == ((pool.labels[rows] + shift) % 10).tolist()


def test_released_samples_grow_and_the_test_samples_are_there_at_once():
    source = changed(Release(every=50, first=1, periods=4))
    rounds = (1, 51, 101, 151)
    for client in range(CLIENTS):
        hands = [set(source.view(client, r).train_indices.tolist()) for r in rounds]
        whole = len(hands[-1])
        assert [len(hand) for hand in hands] == [
            -(-whole * quarter // 4) for quarter in (1, 2, 3, 4)
        ]
        assert hands[0] < hands[1] < hands[2] < hands[3]
        tests = {len(source.view(client, r).test_indices) for r in rounds}
        assert len(tests) == 1


@pytest.mark.parametrize(
    "partition",
    [
        Partition(),
        Dirichlet(minimum=2),
        FewClasses(minimum=2, sigma=1.0),
        LabelGroups(groups=3),
    ],
)
def test_training_and_testing_follow_the_same_distribution(partition):
    source = changed(Regroup(), partition)
    hands = [source.view(client, 1) for client in range(CLIENTS)]
    dealt = np.sort(np.concatenate([view.train_indices for view in hands]))
    assert np.array_equal(dealt, np.arange(1257))
    for view in hands:
        train = np.bincount(view.labels, minlength=10) / len(view.labels)
        test = np.bincount(view.test_labels, minlength=10) / len(view.test_labels)
        assert abs(train - test).sum() < 0.35


@pytest.mark.parametrize(
    ("shared", "counts"),
    [("none", [0] * 10), ("one", [1] * 10), ("two", [2] * 10), ("rare_half", None)],
)
def test_shared_samples_are_everyones(shared, counts):
    own = changed(Regroup([]), Partition())
    source = changed(Regroup([]), Partition(shared=shared))
    added = []
    for client in range(CLIENTS):
        before, after = own.view(client, 1), source.view(client, 1)
        size = len(before.train_indices)
        assert np.array_equal(after.train_indices[:size], before.train_indices)
        assert np.array_equal(after.test_indices, before.test_indices)
        added.append(after.train_indices[size:].tolist())
    assert all(samples == added[0] for samples in added)
    pool = source.view(0, 1).train_pool
    found = np.bincount(pool.labels[added[0]], minlength=10) if added[0] else [0] * 10
    if counts is None:
        rare = np.argsort(np.bincount(pool.labels))[:5]
        counts = np.isin(np.arange(10), rare).astype(int).tolist()
    assert list(found) == counts


def test_drawn_samples_keep_the_labels_as_uneven_as_they_are():
    @dataclass(frozen=True)
    class Uneven(Digits):
        def load(self, data_dir: str = "") -> tuple[Pool, Pool]:
            pools = []
            for pool in super().load():
                # Ten times as many zeros as of any other digit.
                rows = np.flatnonzero(
                    (pool.labels == 0) | (np.arange(len(pool.labels)) % 10 == 0)
                )
                arrays = {"x": pool.x[rows].numpy(), "y": pool.labels[rows]}
                pools.append(Pool.from_arrays(arrays))
            return pools[0], pools[1]

    for partition in (Partition(samples=800), Dirichlet(alpha=100.0, samples=800)):
        stream = Stream(Uneven(), partition, Regroup([2], fraction=0.5), 4, 0, rounds=3)
        for client in range(4):
            for round in (1, 2):
                view = stream.view(client, round)
                train = np.mean(view.labels == 0)
                test = np.mean(view.test_labels == 0)
                assert train == pytest.approx(test, abs=0.15)
                assert train > 0.4


WRONG = {
    "labels up to 10": lambda pool: replace(pool, labels=pool.labels + 1),
    "negative": lambda pool: replace(pool, labels=pool.labels - 1),
    "float": lambda pool: replace(pool, labels=pool.labels / 2),
    "deep": lambda pool: replace(pool, labels=np.eye(10, dtype=int)[pool.labels]),
    "inputs .*8, 1": lambda pool: replace(pool, x=pool.x.movedim(1, -1)),
    "labels up to 9": lambda pool: replace(pool, labels=pool.labels[1:]),
    "no attribute": lambda pool: (pool.x, pool.y),
    "no finite": lambda pool: replace(pool, x=pool.x * float("nan")),
    "no finite float32": lambda pool: replace(pool, x=pool.x.double() + 1e300),
    "3 owners": lambda pool: replace(pool, owners=pool.labels[:3]),
    "3 times": lambda pool: replace(pool, times=pool.labels[:3]),
}


@pytest.mark.parametrize("why", WRONG)
def test_samples_of_a_dataset_of_ones_own_fit_what_it_says(why):
    @dataclass(frozen=True)
    class Own(Digits):
        def load(self, data_dir: str = "") -> tuple[Pool, Pool]:
            train, test = super().load(data_dir)
            return WRONG[why](train), test

    with pytest.raises(ConfigError, match=f"what Own.load returns .*{why}.*0 to 9"):
        Stream(Own(), Partition(), Regroup([2]), 4, 0, rounds=3)


def test_inputs_in_double_precision_become_float32():
    @dataclass(frozen=True)
    class Own(Digits):
        def load(self, data_dir: str = "") -> tuple[Pool, Pool]:
            train, test = super().load(data_dir)
            return replace(train, x=train.x.double()), test

    found = Stream(Own(), Partition(), Regroup([2]), 4, 0, rounds=3).view(0, 1)
    plain = Stream(Digits(), Partition(), Regroup([2]), 4, 0, rounds=3).view(0, 1)
    assert found.train()[0].dtype == torch.float32
    assert torch.equal(found.train()[0], plain.train()[0])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda train, test: train, "all samples of the test set are in the training"),
        (lambda train, test: replace(test, x=100 * test.x), "are they of one scale"),
        (lambda train, test: test, ""),
    ],
)
def test_samples_of_a_dataset_of_ones_own_are_looked_at(made, said):
    @dataclass(frozen=True)
    class Own(Digits):
        def load(self, data_dir: str = "") -> tuple[Pool, Pool]:
            pools = super().load(data_dir)
            return pools[0], made(*pools)

    told = Stream(Own(), Partition(), Regroup([2]), 4, 0, rounds=3).notes()
    assert [said in line for line in told] == [True] * bool(said)


# Mixtures


def test_each_sample_of_a_mixture_has_its_own_rotation():
    partition = Mixtures(clusters=3, sizes=[40, 60], test_samples=20, rotations=[0, 30])
    source = changed(Regroup([3]), partition)
    for client, round in ((0, 1), (5, 1), (5, 3)):
        view = source.view(client, round)
        own = source.timeline.world(round).degrees[client]
        for (x, y), pool, indices in (
            (view.train(), view.train_pool, view.train_indices),
            (view.test(), view.test_pool, view.test_indices),
        ):
            part, row = np.divmod(indices, len(pool.labels))
            assert y.tolist() == pool.labels[row].tolist()
            assert len(x) == len(indices)
            for place in range(len(x)):
                angle = (own + 120 * part[place]) % 360
                image = rotate(pool.x[row[place]][None], angle)[0]
                assert torch.allclose(x[place], image, atol=1e-6)
        shares = np.bincount(view.train_parts, minlength=3) / len(view.labels)
        mixture = source.timeline.world(round).mixture[client]
        assert shares == pytest.approx(mixture)


# Time


@dataclass(frozen=True)
class Dated(Digits):
    """Digits of twelve owners, one taken every day; those for testing too."""

    days: int = 1000

    def load(self, data_dir: str = "") -> tuple[Pool, Pool]:
        train, test = (
            replace(
                pool,
                times=5 + np.arange(len(pool.labels)) * self.days // len(pool.labels),
                owners=np.arange(len(pool.labels)) % CLIENTS,
            )
            for pool in super().load(data_dir)
        )
        return train, test


def dated(drift: Drift, dataset: Digits | None = None) -> Stream:
    return Stream(dataset or Dated(), Natural(), drift, CLIENTS, seed=3, rounds=40)


@pytest.mark.parametrize(
    ("round", "first", "last"),
    # 1,000 days in ten periods, of which three are remembered.
    [(1, 0, 299), (4, 0, 299), (5, 100, 399), (9, 200, 499), (40, 700, 999)],
)
def test_samples_arrive_when_they_were_taken_and_are_forgotten(round, first, last):
    drift = Release(every=4, first=1, periods=10, order="time", window=12)
    source = dated(drift)
    for part in ("train", "test"):
        found, owners = [], []
        for client in range(CLIENTS):
            view = source.view(client, round)
            pool, rows = (getattr(view, f"{part}_{x}") for x in ("pool", "indices"))
            owners.append(set(pool.owners[rows].tolist()))
            found.append(rows)
        assert sorted(map(list, owners)) == [[owner] for owner in range(CLIENTS)]
        days = pool.times - 5
        there = np.flatnonzero((days >= first) & (days <= last))
        assert np.sort(np.concatenate(found)).tolist() == there.tolist()


def test_a_clients_own_samples_arrive_in_equal_parts_by_time():
    drift = Release(every=4, first=1, periods=5, order="own")
    source = dated(drift)
    for client in range(CLIENTS):
        last = source.view(client, 17)
        whole, tests = last.train_indices, len(last.test_indices)
        for part, start in enumerate((1, 5, 9, 13), 1):
            view = source.view(client, start)
            count = -(-part * len(whole) // 5)
            # Of an owner, the rows of the pool are in the order of time.
            assert view.train_indices.tolist() == whole[:count].tolist()
            assert 0 < len(view.test_indices) < tests


@pytest.mark.parametrize("dataset", [Digits(), Dated(days=1)])
@pytest.mark.parametrize("order", ["own", "time"])
def test_without_times_a_stream_in_time_is_one_clear_line(dataset, order):
    drift = Release(every=4, first=1, order=order)
    source = Stream(dataset, Partition(), drift, CLIENTS, seed=3, rounds=40)
    with pytest.raises(ConfigError, match=r"drift\.order.*fmow") as caught:
        source.view(0, 1)
    assert "\n" not in str(caught.value)
    one_time = isinstance(dataset, Dated)
    assert ("all have the time" in str(caught.value)) == one_time

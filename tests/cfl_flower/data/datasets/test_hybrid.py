from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.datasets.hybrid import Hybrid
from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.reading.pool import PARTS
from cfl_flower.data.worlds.drift import Regroup
from cfl_flower.data.worlds.partition import LabelGroups, Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.errors import ConfigError

TWO = Hybrid({"many": Digits(test_fraction=0.3), "few": Digits(test_fraction=0.9)})


def test_the_parts_follow_each_other_and_keep_their_names() -> None:
    train, test = TWO.load("")
    parts = [part.load() for part in TWO.parts.values()]
    assert len(train.labels) == sum(len(pool.labels) for pool, _ in parts)
    assert train.domains is not None
    assert np.bincount(train.domains).tolist() == [len(p[0].labels) for p in parts]
    assert np.array_equal(test.labels[: len(parts[0][1].labels)], parts[0][1].labels)
    assert (TWO.shape, TWO.classes) == ((1, 8, 8), 10)


def test_bytes_beside_floats_are_of_the_same_scale(tmp_path: Path) -> None:
    white = {f"{part}_images": np.full((3, 8, 8), 255, np.uint8) for part in PARTS}
    labels = {f"{part}_labels": np.arange(3) for part in PARTS}
    np.savez(tmp_path / "white.npz", **white, **labels)
    images = Npz(file="white.npz", shape=(1, 8, 8), classes=10)
    train, _ = Hybrid({"digits": Digits(), "white": images}).load(str(tmp_path))
    last = torch.arange(len(train.labels))[-4:]
    assert train.inputs(last[1:]).unique().tolist() == [1]
    assert train.inputs(last[:1]).max() <= 1


@pytest.mark.parametrize(
    "partition",
    [
        Partition(domains=2),
        Partition(domains=2, rotations=[0, 90]),
        Partition(domains=2, samples=20, test_samples=5),
        LabelGroups(groups=2, domains=2),
    ],
)
def test_a_client_holds_samples_of_one_domain_all_its_life(
    partition: Partition,
) -> None:
    stream = Stream(TWO, partition, Regroup([3]), 12, seed=0, rounds=5)
    found = []
    for client in range(12):
        views = [stream.view(client, round) for round in (1, 3)]
        domains = {
            int(domain)
            for view in views
            for pool, rows in (
                (view.train_pool, view.train_indices),
                (view.test_pool, view.test_indices),
            )
            for domain in pool.domains[rows]  # type: ignore[index]
        }
        assert len(domains) == 1
        found += domains
    assert np.bincount(found).tolist() == [6, 6]
    kinds = 2 * len(partition.rotations) * (getattr(partition, "groups", 1))
    assert len(set(stream.timeline.concepts(1))) == kinds


@pytest.mark.parametrize(("dataset", "domains"), [(TWO, 1), (Digits(), 2), (TWO, 3)])
def test_the_partition_must_know_the_number_of_datasets(
    dataset: Hybrid | Digits, domains: int
) -> None:
    stream = Stream(dataset, Partition(domains=domains), Regroup([]), 6, 0, rounds=5)
    with pytest.raises(ConfigError, match=rf"partition\.domains={domains}"):
        stream.view(0, 1)


def test_parts_that_differ_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"dataset\.parts.*alike"):
        Hybrid({"one": Digits(), "two": Digits(size=16)})
    with pytest.raises(ConfigError, match=r"dataset\.parts is empty"):
        Hybrid().check("")


DIGITS_TWICE = [
    "dataset=hybrid",
    "dataset.parts.mnist._target_=cfl_flower.data.datasets.digits.Digits",
    "dataset.parts.fashion_mnist._target_=cfl_flower.data.datasets.digits.Digits",
]


def test_two_datasets_and_four_angles_are_eight_clusters() -> None:
    config = compose_config([*DIGITS_TWICE, "partition=hybrid_rotated", "drift=none"])
    world, concepts = config.timeline.world(1), config.timeline.concepts(1)
    assert np.bincount(concepts).tolist() == [5] * 8
    pairs = set(zip(world.domains.tolist(), world.degrees.tolist(), strict=True))
    assert pairs == {(d, a) for d in (0, 1) for a in (0.0, 90.0, 180.0, 270.0)}
    source = Stream(config.dataset, config.partition, config.drift, 40, 0, rounds=3)
    pool = source.view(0, 1).train_pool
    for number in range(8):
        members = np.flatnonzero(concepts == number)
        hands = [source.view(client, 1).train_indices for client in members]
        domain = world.domains[members[0]]
        # Each cluster deals out the whole of its dataset.
        wanted = np.flatnonzero(pool.domains == domain)
        assert np.sort(np.concatenate(hands)).tolist() == wanted.tolist()

from dataclasses import dataclass, replace

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.arrivals import LabelBuckets
from cfl_flower.data.worlds.changes import Exchange, Regroup, Relabel
from cfl_flower.data.worlds.drift import Change
from cfl_flower.data.worlds.label_skew import Dirichlet, FewClasses, LabelGroups
from cfl_flower.data.worlds.mixtures import Mixtures
from cfl_flower.data.worlds.natural import Natural
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.server_app import open_stream

CLIENTS, CLASSES = 30, 10


@dataclass(frozen=True)
class Owned(Digits):
    """Digits of owners that write three labels each, as in FlexCFL's FEMNIST."""

    def load(self, data_dir: str = "") -> tuple[Pool, Pool]:
        train, test = super().load(data_dir)
        return self._owned(train), self._owned(test)

    def _owned(self, pool: Pool) -> Pool:
        labels = np.random.default_rng(0).permuted(
            np.tile(np.arange(CLASSES), (CLIENTS, 1)), axis=1
        )[:, :3]
        owners = np.zeros(len(pool.labels), np.int64)
        for label in range(CLASSES):
            rows = np.flatnonzero(pool.labels == label)
            holders = np.flatnonzero((labels == label).any(axis=1))
            owners[rows] = holders[np.arange(len(rows)) % len(holders)]
        return replace(pool, owners=owners)


PARTITIONS: dict[str, Partition] = {
    "iid": Partition(),
    "drawn": Partition(samples=3),
    "dirichlet": Dirichlet(alpha=0.1),
    "dirichlet_drawn": Dirichlet(alpha=0.1, samples=20),
    "few_classes": FewClasses(labels=3),
    "label_groups": LabelGroups(),
    "pathological": LabelGroups(groups=4, purity=1.0),
    "mixtures": Mixtures(sizes=[3, 6], test_samples=4),
    "natural": Natural(),
}
every_partition = pytest.mark.parametrize("name", PARTITIONS)
BUCKETS = {"every": 1, "first": 1, "window": 2}
SOME = Regroup([5], fraction=0.3)


def stream(name: str, drift: Change, rounds: int = 10) -> Stream:
    return Stream(Owned(), PARTITIONS[name], drift, CLIENTS, 0, rounds)


def labels(source: Stream, round: int) -> list[set[int]]:
    """Return the labels that each client trains on, as it calls them."""
    views = (source.view(client, round) for client in range(CLIENTS))
    return [set(view.labels.tolist()) for view in views]


@every_partition
def test_buckets_are_of_labels_with_samples_and_never_empty(name):
    held = labels(stream(name, Regroup([])), 1)
    source = stream(name, LabelBuckets(**BUCKETS))
    for round in range(1, 11):
        for all_labels, present in zip(held, labels(source, round), strict=True):
            assert present <= all_labels
            # Of ten buckets, each of one label at most, two are present.
            assert len(present) == min(2, len(all_labels))


@every_partition
def test_random_swaps_are_of_labels_with_samples(name):
    source = stream(name, Relabel([2], random_swaps=1))
    for client in range(CLIENTS):
        before, after = (source.view(client, round).labels for round in (1, 2))
        if len(np.unique(before)) > 1:
            moved = {*before[before != after].tolist()}
            assert len(moved) == 2
            assert {*before.tolist()} == {*after.tolist()}


@every_partition
def test_swapped_parts_are_labels_with_samples(name):
    source = stream(name, Exchange([2], part=True))
    before, after = labels(source, 1), labels(source, 2)
    swapped = source.timeline.world(2).source != np.arange(CLIENTS)[:, None]
    for client in np.flatnonzero(swapped.any(axis=1)).tolist():
        # Label for label: as many as before.
        assert len(before[client]) == len(after[client])


@pytest.mark.parametrize("drift", ["label_buckets", "concept_half", "swap_part"])
def test_server_and_workers_draw_the_same_worlds(drift):
    config = compose_config([f"drift={drift}", "partition=dirichlet", "rounds=14"])
    line, other = config.timeline, open_stream(config).timeline
    assert line.rounds == other.rounds
    for round in line.rounds:
        one, two = line.world(round), other.world(round)
        for trait in ("visible", "relabel", "source"):
            assert np.array_equal(getattr(one, trait), getattr(two, trait))

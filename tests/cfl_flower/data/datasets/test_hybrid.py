import numpy as np
import pytest

from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.datasets.hybrid import Hybrid
from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.tables import Csv
from cfl_flower.data.worlds.changes import Regroup
from cfl_flower.data.worlds.label_skew import LabelGroups
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.errors import ConfigError

TWO = Hybrid({"many": Digits(test_fraction=0.3), "few": Digits(test_fraction=0.9)})


def test_the_parts_follow_each_other_and_keep_their_names():
    train, test = TWO.load("")
    parts = [part.load() for part in TWO.parts.values()]
    assert len(train.labels) == sum(len(pool.labels) for pool, _ in parts)
    assert np.bincount(train.domains).tolist() == [len(p[0].labels) for p in parts]
    assert np.array_equal(test.labels[: len(parts[0][1].labels)], parts[0][1].labels)
    assert (TWO.shape, TWO.classes) == ((1, 8, 8), 10)


@pytest.mark.parametrize(
    "partition",
    [
        Partition(domains=2),
        Partition(domains=2, rotations=[0, 90]),
        Partition(domains=2, samples=20, test_samples=5),
        LabelGroups(groups=2, domains=2),
    ],
)
def test_a_client_holds_samples_of_one_domain_all_its_life(partition):
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
def test_the_partition_must_know_the_number_of_datasets(dataset, domains):
    stream = Stream(dataset, Partition(domains=domains), Regroup([]), 6, 0, rounds=5)
    with pytest.raises(ConfigError, match=rf"partition\.domains={domains}"):
        stream.view(0, 1)


def test_parts_that_differ_are_refused():
    with pytest.raises(ConfigError, match=r"dataset\.parts.*alike"):
        Hybrid({"one": Digits(), "two": Digits(size=16)})
    with pytest.raises(ConfigError, match=r"dataset\.parts is empty"):
        Hybrid().check("")
    # What only its files tell, a part does not know; nor do its clients agree.
    for own in (Npz(), Csv(label="y"), Csv(label="y", shape=(2,), classes=2)):
        with pytest.raises(ConfigError, match=r"dataset\.parts\.a=\w+ is not allowed"):
            Hybrid({"a": own}).check("")

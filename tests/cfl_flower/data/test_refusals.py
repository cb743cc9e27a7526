"""Settings out of range, and files that are not there: one line, with key and value."""

import math
import re
from typing import Any

import numpy as np
import pytest

from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.datasets.folders import ImageFolder
from cfl_flower.data.datasets.images import Cifar10, Cifar100, FashionMnist, Mnist
from cfl_flower.data.datasets.leaf import Femnist, Sent140
from cfl_flower.data.datasets.listed import Cityscapes, Fmow, OpenImages, Waymo
from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.datasets.synthetic import Synthetic
from cfl_flower.data.datasets.tables import Csv
from cfl_flower.data.reading.files import FileDataset
from cfl_flower.data.worlds.arrivals import LabelBuckets, Release
from cfl_flower.data.worlds.changes import Exchange, Regroup, Relabel, Rotate
from cfl_flower.data.worlds.label_skew import Dirichlet, FewClasses, LabelGroups
from cfl_flower.data.worlds.mixtures import Mixtures
from cfl_flower.data.worlds.natural import Natural
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.world import Layout, first_world
from cfl_flower.errors import ConfigError

STREAM: dict[str, Any] = {"every": 5, "first": 1}

REFUSED: dict[type, list[dict[str, Any]]] = {
    Digits: [{"size": 7}, *({"test_fraction": share} for share in (0.0, 0.001, 1.0))],
    Synthetic: [{"alpha": -1}, {"beta": -0.5}, {"devices": 0}, {"test_fraction": 1.0}],
    ImageFolder: [{"size": 0}, {"channels": 2}],
    OpenImages: [{"size": 0}, {"classes": 0}, {"client_classes": 0}],
    Cityscapes: [{"block": 0}],
    Mnist: [{"test_fraction": 1.0}],
    Npz: [{"classes": 3, "names": ("a", "b")}],
    Folder: [{"shape": ()}, {"shape": (3, 0)}, {"classes": 0}, {"names": ("a",)}],
    Partition: [{"minimum": -1}, {"rotations": []}, {"rotations": [math.nan]}],
    LabelGroups: [
        *({"groups": 0}, {"purity": 1.5}, {"samples": 0}, {"test_samples": -1}),
        *({"labels": 0}, {"alpha": 0.001}, {"alpha": 1e7}),
    ],
    Dirichlet: [{"alpha": 0.0}, {"alpha": 1e308}],
    FewClasses: [{"labels": 0}, {"sigma": -1.0}],
    Mixtures: [
        *({"clusters": 1}, {"sizes": [500]}, {"sizes": [9, 8]}, {"sizes": [0, 8]}),
        *({"main": [0.9, 0.4]}, {"main": [0.4, 1.1]}, {"others": 0.0}, {"domains": 2}),
    ],
    Regroup: [
        *({"rounds": [0]}, {"rounds": [5, 3]}, {"rounds": [3, 3]}, {"fraction": 1.5}),
        *({"every": 0}, {"first": 0}, {"modulo": 0, "residues": [0]}),
        *({"residues": [3], "modulo": 3}, {"residues": [3]}, {"ids": []}),
        {"residues": [], "modulo": 3},
    ],
    Relabel: [
        *({"swaps": []}, {"swaps": [[1]]}, {"swaps": [[1, 1]]}, {"random_swaps": -1})
    ],
    Exchange: [{"probability": 1.1}],
    Release: [
        *({"periods": 0, **STREAM}, {"order": "chance", **STREAM}),
        *({"window": 0, **STREAM}, {"window": 9, "rounds": [1]}),
        {"fraction": 0.5, **STREAM},
    ],
    Rotate: [{"degrees": math.inf}],
    LabelBuckets: [{"buckets": 0}, {"window": 11, "every": 1}],
}


@pytest.mark.parametrize(
    ("kind", "options"),
    [(kind, options) for kind, rows in REFUSED.items() for options in rows],
)
def test_a_setting_out_of_range_is_named(kind, options):
    with pytest.raises(ConfigError, match=rf"\.{next(iter(options))}="):
        kind(**options)


@pytest.mark.parametrize(
    ("partition", "labels", "words"),
    [
        (LabelGroups(groups=11), 10, r"partition\.groups=11.*10 labels"),
        (LabelGroups(groups=1), 10, "groups=1 .* at least 2 with drift=regroup"),
        (FewClasses(labels=11), 10, r"partition\.labels=11.*10 labels"),
        (LabelGroups(labels=11), 10, r"partition\.labels=11.*10 labels"),
        (LabelGroups(alpha=0.5), 10, r"partition\.alpha=0.5.*null with drift=regroup"),
        (LabelGroups(groups=2, named=[[0], [12]]), 10, r"partition\.named="),
        (Natural(), 2, "cannot be allocated anew"),
    ],
)
def test_a_partition_that_does_not_fit_the_labels_is_refused(partition, labels, words):
    before = Layout(np.ones((4, labels)), np.zeros(4, np.int64))
    with pytest.raises(ConfigError, match=words):
        partition.layout(4, labels, first_world(before).allocations, 0)


@pytest.mark.parametrize("named", [[[0, 1]], [[0], []]])
def test_groups_without_labels_are_refused(named):
    with pytest.raises(ConfigError, match=r"partition\.named="):
        LabelGroups(groups=2, named=named)
    with pytest.raises(ConfigError, match=r"labels=1.* null with partition\.named"):
        LabelGroups(groups=2, named=[[0], [1]], labels=1)


FILES: list[FileDataset] = [
    *(Mnist(), FashionMnist(), Cifar10(), Cifar100(), Femnist(), Sent140()),
    *(Fmow(), OpenImages(), Cityscapes(), Waymo()),
    *(ImageFolder(), Npz(), Csv(), Csv(test_file="test.csv")),
]


@pytest.mark.parametrize("dataset", FILES, ids=lambda it: type(it).__name__)
def test_files_that_are_not_there_are_named(dataset, tmp_path):
    lacks = f"{dataset.name} is not in data_dir={tmp_path}: it lacks "
    line = f"{lacks}{', '.join(dataset.files())}; {dataset.remedy}"
    for look in (dataset.check, dataset.load):
        with pytest.raises(ConfigError, match=re.escape(line)):
            look(str(tmp_path))

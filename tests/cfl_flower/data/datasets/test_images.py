"""torchvision's loaders on small files in the real layouts, and on the real files."""

import gzip
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from cfl_flower.data.datasets.images import IDX, Cifar10, Cifar100, FashionMnist, Mnist
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import real

Write = Callable[[Path, bytes], object]


def idx(array: np.ndarray) -> bytes:
    """Return an array of bytes in MNIST's format."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def mnist_files(count: int = 5) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    files = {}
    for part, size in (("train", count), ("t10k", 2)):
        images = rng.integers(0, 256, (size, 28, 28), np.uint8)
        files[f"{part}-images-idx3-ubyte"] = idx(images)
        files[f"{part}-labels-idx1-ubyte"] = idx(np.arange(size, dtype=np.uint8))
    return files


def put(folder: Path, packed: bool = False) -> None:
    folder.mkdir(parents=True)
    for name, data in mnist_files().items():
        path = folder / (name + ".gz" * packed)
        path.write_bytes(gzip.compress(data) if packed else data)


@pytest.mark.parametrize("packed", [False, True])
def test_mnists_files_are_read_plain_or_packed(packed, tmp_path, cache):
    put(tmp_path / "data" / "MNIST" / "raw", packed)
    Mnist().check(str(tmp_path / "data"))
    train, test = Mnist().load(str(tmp_path / "data"))
    raw = mnist_files()["train-images-idx3-ubyte"][16:]
    assert train.x.shape == (5, *Mnist().shape)
    assert train.x.numpy().tobytes() == raw
    assert train.labels.tolist() == [0, 1, 2, 3, 4]
    assert test.y.tolist() == [0, 1]
    inputs = train.inputs(slice(0, 5))
    assert float(inputs.max()) == max(raw) / 255
    coloured = Mnist(colour=True).load(str(tmp_path / "data"))[0].x
    assert coloured.shape[1:] == Mnist(colour=True).shape == (3, 28, 28)
    assert all(torch.equal(coloured[:, each], train.x[:, 0]) for each in range(3))
    # The arrays are there; what was unpacked for them is gone, and data_dir untouched.
    assert not list(cache.rglob("*ubyte"))
    names = {path.name for path in (tmp_path / "data").rglob("*ubyte*")}
    assert names == {f"{name}.gz" if packed else name for name in IDX}


def test_without_a_network_nothing_can_be_fetched(tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(ConfigError, match=r"MNIST cannot be fetched .*; check the net"):
        Mnist(download=True).load(str(tmp_path))
    with pytest.raises(ConfigError, match=r"CIFAR10 .*refused.* files into .*/cifar-"):
        Cifar10(download=True).load(str(tmp_path))


def cut(path: Path, data: bytes) -> object:
    return path.write_bytes(data[: len(data) // 2])


def garble(path: Path, data: bytes) -> object:
    return path.write_bytes(b"\x00\x01" + data[2:])


@pytest.mark.parametrize("spoil", [cut, garble])
@pytest.mark.parametrize("packed", [False, True])
def test_a_corrupt_file_is_one_line(packed, spoil, tmp_path):
    put(tmp_path / "MNIST" / "raw", packed)
    path = tmp_path / "MNIST" / "raw" / (IDX[0] + ".gz" * packed)
    spoil(path, path.read_bytes())
    words = r"MNIST in data_dir=.*cannot be read"
    with pytest.raises(ConfigError, match=words) as error:
        Mnist().load(str(tmp_path))
    assert "\n" not in str(error.value)


def cifar(folder: Path, keys: dict[str, str], names: list[str]) -> dict[str, str]:
    """Write CIFAR's pickles, four images in each, and return their md5."""
    folder.mkdir(parents=True)
    rng, found = np.random.default_rng(0), {}
    for name in names:
        entry: dict[str, object] = {keys["names"]: ["a", "b"]}
        if "meta" not in name:
            data = rng.integers(0, 256, (4, 3072), np.uint8)
            entry = {"data": data, keys["labels"]: [3, 1, 0, 2]}
        content = pickle.dumps(entry)
        (folder / name).write_bytes(content)
        found[name] = hashlib.md5(content).hexdigest()
    return found


@pytest.mark.parametrize(
    ("dataset", "keys", "train"),
    [
        (Cifar10(), {"labels": "labels", "names": "label_names"}, 20),
        (Cifar100(), {"labels": "fine_labels", "names": "fine_label_names"}, 4),
    ],
)
def test_cifars_pickles_are_read(dataset, keys, train, tmp_path, monkeypatch):
    from cfl_flower.data.reading.vision import datasets

    sums = cifar(tmp_path / dataset.folder, keys, list(dataset.stems))
    # torchvision knows the sums of the real files only.
    official = getattr(datasets, dataset.name)
    for attribute in ("train_list", "test_list"):
        own = [[name, sums[name]] for name, _ in getattr(official, attribute)]
        monkeypatch.setattr(official, attribute, own)
    meta = {**official.meta, "md5": sums[official.meta["filename"]]}
    monkeypatch.setattr(official, "meta", meta)
    pools = dataset.load(str(tmp_path))
    shapes = [tuple(pool.x.shape) for pool in pools]
    assert shapes == [(train, 3, 32, 32), (4, 3, 32, 32)]
    assert pools[0].labels[:4].tolist() == [3, 1, 0, 2]
    first = pickle.loads((tmp_path / dataset.folder / dataset.stems[0]).read_bytes())
    assert pools[0].x[0].numpy().tobytes() == first["data"][0].tobytes()


# Per class 0 to 9, as the datasets' own papers and pages give them.
MNIST_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


@pytest.mark.parametrize(
    ("dataset", "counts"), [(Mnist(), MNIST_COUNTS), (FashionMnist(), [6000] * 10)]
)
def test_the_real_files_hold_what_they_should(dataset, counts):
    train, test = real(dataset)
    assert np.bincount(train.labels).tolist() == counts
    assert len(test.labels) == 10000
    assert train.x.dtype == test.x.dtype
    assert 0.1 < float(train.inputs(slice(0, 1000)).mean()) < 0.4


def test_both_sets_can_be_pooled_and_split_anew(tmp_path, cache):
    put(tmp_path / "MNIST" / "raw")
    train, test = Mnist(test_fraction=0.5).load(str(tmp_path))
    # Five training and two test images of labels 0 to 4 and 0 to 1.
    labels = sorted([*train.labels.tolist(), *test.labels.tolist()])
    assert labels == [0, 0, 1, 1, 2, 3, 4]
    assert test.labels.tolist() == [0, 1]
    pixels = [int(pool.x.sum()) for pool in (train, test)]
    official = [int(pool.x.sum()) for pool in Mnist().load(str(tmp_path))]
    assert sum(pixels) == sum(official)


def test_normalised_pixels_are_shifted_and_scaled_alike(tmp_path, cache):
    put(tmp_path / "MNIST" / "raw")
    every = slice(0, 9)
    kinds = Mnist(), Mnist(normalise=[0.5, 0.25])
    pools = (kind.load(str(tmp_path)) for kind in kinds)
    for plain, scaled in zip(*pools, strict=True):
        x = plain.inputs(every).numpy()
        assert x.max() > x.min()
        assert np.allclose(scaled.inputs(every).numpy(), 4 * x - 2, atol=1e-6)
        assert np.array_equal(plain.labels, scaled.labels)


@pytest.mark.parametrize(
    "settings",
    [
        {"normalise": [0.5]},
        {"normalise": [0.5, 0]},
        {"normalise": [0.5, "wide"]},
        {"normalise": [[0.5], [0.5, 0.5]]},
        {"normalise": [[0.5, 0.5], [0.5, 0.5]]},
        {"normalise": [[0.5], [0]]},
        {"normalise": [[], []]},
        {"normalise": [float("nan"), 1]},
        {"normalise": [0.5, 0.5], "standardise": True},
    ],
)
def test_a_mean_and_deviation_that_cannot_be_are_refused(settings):
    with pytest.raises(ConfigError, match=r"dataset\.normalise="):
        Mnist(**settings)


@pytest.mark.parametrize("kind", [Mnist, FashionMnist, Cifar10, Cifar100])
def test_grey_images_alone_are_shown_in_colour(kind):
    if kind.size[0] == 1:
        assert kind(colour=True).shape == (3, 28, 28)
        return
    words = r"dataset\.colour=true .*false: .*already"
    with pytest.raises(ConfigError, match=words):
        kind(colour=True)


def test_a_pixel_that_hardly_varies_is_scaled_in_bytes(tmp_path, cache):
    folder = tmp_path / "MNIST" / "raw"
    put(folder)
    images = np.zeros((5, 28, 28), np.uint8)
    images[0, 3, 4] = 7
    (folder / "train-images-idx3-ubyte").write_bytes(idx(images))
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(images[1:3]))
    train, _ = Mnist(standardise=True).load(str(tmp_path))
    # Seven images, of which one has 7: mean 1, deviation sqrt(6).
    assert train.x[0, 0, 3, 4] == pytest.approx(6 / (6**0.5 + 0.001), rel=1e-5)

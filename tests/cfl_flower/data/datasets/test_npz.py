import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.worlds.arrivals import Release
from cfl_flower.data.worlds.changes import Regroup
from cfl_flower.data.worlds.natural import Natural
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import owners, real, times


def write(folder: Path, **changes: Any) -> str:
    rng = np.random.default_rng(0)
    arrays = {
        "train_images": rng.integers(0, 256, (4, 6, 5, 3), np.uint8),
        "train_labels": np.uint8([0, 1, 2, 1]),
        "test_images": rng.integers(0, 256, (2, 6, 5, 3), np.uint8),
        "test_labels": np.uint8([2, 0]),
        **changes,
    }
    np.savez(folder / "some.npz", **{k: v for k, v in arrays.items() if v is not None})
    return str(folder)


def load(folder: str, shape: tuple[int, ...] = (3, 6, 5), classes: int = 3) -> Any:
    return Npz(file="some.npz", shape=shape, classes=classes).load(folder)


def test_float_images_may_have_their_channels_at_either_end(tmp_path):
    last = np.arange(4 * 6 * 5 * 3, dtype=np.float32).reshape(4, 6, 5, 3)
    first = last.transpose(0, 3, 1, 2)
    for images in (last, first):
        changes = {"train_images": images, "test_images": images[:2]}
        assert np.array_equal(load(write(tmp_path, **changes))[0].x.numpy(), first)
    # Where both may be the channels, the first are.
    both = {"train_images": last[:, :3, :, :], "test_images": last[:2, :3]}
    found = load(write(tmp_path, **both), (3, 5, 3))[0]
    assert np.array_equal(found.x.numpy(), last[:, :3])


@pytest.mark.parametrize(
    ("more", "left"),
    [
        (["x_val", "y_val"], "x_val, y_val is not read"),
        (["owners_train"], "owners_train is not read"),
        (["owner", "time"], "owner, time is not read"),
        (["owner_train", "time_test"], ""),
    ],
)
def test_an_array_that_is_not_read_is_told(more, left, tmp_path):
    named = {"train": np.arange(4), "test": np.arange(2)}
    kept = {name: named.get(name.partition("_")[2], np.zeros(3)) for name in more}
    notes = Npz(file="some.npz").notes(write(tmp_path, **kept))
    assert [note for note in notes if "not read" in note] == (
        [f"the .npz file some.npz: {left}"] if left else []
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_labels": None}, "has the arrays .*train_images.*; call them x and y"),
        (
            {"train_labels": np.uint8([0, 1])},
            r"\(4, 3, 6, 5\) and labels of shape \(2,\)",
        ),
        (
            {"test_labels": np.uint8([0, 9])},
            "class '9', which is none of 0 to 2; correct dataset.classes",
        ),
        (
            {"test_images": np.zeros((2, 9, 9, 3), np.uint8)},
            r"\(3, 6, 5\) for training, but of shape \(3, 9, 9\)",
        ),
        *(
            ({"time_train": np.uint64([0, 1, 2, time])}, f"times such as {time} are")
            for time in (2**63, 2**64 - 1)
        ),
    ],
)
def test_a_file_that_does_not_fit_is_one_line(changes, words, tmp_path):
    with pytest.raises(ConfigError, match=words) as error:
        load(write(tmp_path, **changes))
    assert "\n" not in str(error.value)


def jpegs(pixels: np.ndarray) -> dict[str, np.ndarray]:
    files = []
    for image in pixels:
        files.append(io.BytesIO())
        Image.fromarray(image).save(files[-1], "JPEG", quality=95)
    data = [file.getvalue() for file in files]
    limits = np.cumsum([0, *map(len, data)])
    return {"jpeg": np.frombuffer(b"".join(data), np.uint8), "offsets": limits}


def test_jpeg_files_end_to_end_are_unpacked(tmp_path):
    grey = np.arange(4, dtype=np.uint8)[:, None, None, None] * 60
    pixels = np.broadcast_to(grey, (4, 6, 5, 3)).copy()
    changes: dict[str, Any] = {"train_images": None, "test_images": None}
    for part, count in (("train", 4), ("test", 2)):
        for key, value in jpegs(pixels[:count]).items():
            changes[f"{part}_{key}"] = value
    train, test = load(write(tmp_path, **changes))
    assert train.x.shape == (4, 3, 6, 5)
    assert np.abs(train.x.numpy() - pixels.transpose(0, 3, 1, 2).astype(int)).max() <= 2
    assert test.labels.tolist() == [2, 0]
    changes["train_offsets"] = changes["train_offsets"] - 1
    with pytest.raises(ConfigError, match=r"some\.npz cannot be read"):
        load(write(tmp_path, **changes))


def test_owners_and_times_may_stand_beside(tmp_path):
    x = np.arange(20, dtype=np.float32)[:, None]
    of = {"y": np.arange(20) % 2, "owner": np.repeat([b"b", b"a"], 10)}
    when = np.arange(20) // 5
    np.savez(tmp_path / "data.npz", x=x, time=when, **of)
    train, test = Npz().load(str(tmp_path))
    assert owners(train).tolist() == (train.x[:, 0] < 10).int().tolist()
    assert times(test).tolist() == (test.x[:, 0] // 5).int().tolist()
    parts = {"owner_train": of["owner"], "owner_test": of["owner"][:2]}
    both = {"x_train": x, "y_train": of["y"], "x_test": x[:2], "y_test": of["y"][:2]}
    np.savez(tmp_path / "data.npz", **both, **parts)
    _, test = Npz().load(str(tmp_path))
    assert owners(test).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "partition", "drift"),
    [
        ("owner", Natural(), Regroup()),
        ("time", Partition(), Release(every=2, first=1, order="time", periods=2)),
    ],
)
@pytest.mark.parametrize(("there", "lacks"), [("train", "test"), ("test", "train")])
def test_owners_and_times_of_one_part_alone_name_the_other(
    name, partition, drift, there, lacks, tmp_path
):
    named = {"train": np.arange(4), "test": np.arange(2)}
    for array in ({}, {f"{name}_{there}": named[there]}):
        folder = write(tmp_path, **array)
        dataset = Npz(file="some.npz", shape=(3, 6, 5), classes=3)
        with pytest.raises(ConfigError, match="a dataset that knows") as error:
            Stream(dataset, partition, drift, 2, 0, 8, folder).view(0, 1)
        assert (f"{name}_{lacks} in a .npz" in str(error.value)) is bool(array)


@pytest.mark.parametrize("more", [["x_train"], ["x_test", "y_test"], ["y_val"]])
def test_two_sets_of_samples_are_refused(more, tmp_path):
    x = np.zeros((4, 2), np.float32)
    arrays = {"x": x, "y": np.array([0, 1, 0, 1])} | dict.fromkeys(more, x)
    np.savez(tmp_path / "two.npz", **arrays)
    with pytest.raises(ConfigError, match=f"x and y, and {', '.join(more)} as well"):
        Npz(file="two.npz").complete(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "each"), [("jpeg-copy", 5000), ("subset-lossless", 2000)]
)
def test_the_real_files_of_cifar10_hold_what_they_should(kind, each):
    train, test = real(Npz(file=f"cifar10/cifar10-{kind}.npz"))
    assert np.bincount(train.labels).tolist() == [each] * 10
    assert np.bincount(test.labels).tolist() == [each // 5] * 10
    mean = train.inputs(slice(None, None, 5)).mean((0, 2, 3)).tolist()
    assert mean == pytest.approx([0.491, 0.482, 0.447], abs=0.01)

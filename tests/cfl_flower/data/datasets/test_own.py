import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cfl_flower.data.datasets.own import Folder
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import owners, picture, times


def npz(path: Path, x: Any, y: Any, changed: int = 0) -> None:
    np.savez(path, x=np.asarray(x), y=np.asarray(y))
    if changed:
        os.utime(path, (changed, changed))


def test_a_device_reads_arrays_and_pictures(tmp_path):
    dataset = Folder(shape=(1, 2, 2), classes=3, test_fraction=0.5)
    npz(tmp_path / "b.npz", np.full((20, 1, 2, 2), 51, np.uint8), [2] * 20, 100)
    for number in range(20):
        path = tmp_path / "1" / f"{number:02d}.png"
        picture(path, (255, 255, 255))
        os.utime(path, (200, 200))
    train, test = dataset.load(str(tmp_path))
    assert train.x.dtype == torch.uint8
    assert len(train.labels) + len(test.labels) == 40
    for pool in (train, test):
        assert pool.x.shape[1:] == dataset.shape
        # What changed last comes last.
        assert (np.diff(times(pool)) >= 0).all()
        assert (times(pool) == np.where(pool.labels == 2, 100, 200)).all()
        assert (pool.x[:, 0, 0, 0].numpy() == np.where(pool.labels == 2, 51, 255)).all()
        assert not owners(pool).any()


def test_later_samples_leave_the_split_unchanged(tmp_path):
    dataset = Folder(shape=(1,), classes=1, test_fraction=0.3)
    npz(tmp_path / "m.npz", np.arange(30.0)[:, None], [0] * 30, 100)
    before = [pool.x[:, 0].tolist() for pool in dataset.load(str(tmp_path))]
    npz(tmp_path / "a.npz", np.arange(30.0, 40)[:, None], [0] * 10, 200)
    npz(tmp_path / "m.npz", np.arange(31.0)[:, None], [0] * 31, 100)
    after = [pool.x[:, 0].tolist() for pool in dataset.load(str(tmp_path))]
    assert 4 <= len(before[1]) <= 14
    for old, new in zip(before, after, strict=True):
        assert new[: len(old)] == old
    assert sorted(after[0] + after[1]) == sorted([*range(40), 30])


def test_the_version_changes_with_every_file(tmp_path):
    dataset = Folder(shape=(1, 2, 2), classes=2)
    versions = [dataset.version(str(tmp_path))]
    path = tmp_path / "a.npz"
    npz(path, np.zeros((2, 1, 2, 2)), [0, 1], 100)
    versions.append(dataset.version(str(tmp_path)))
    npz(path, np.zeros((2, 1, 2, 2)), [0, 0], 200)
    versions.append(dataset.version(str(tmp_path)))
    picture(tmp_path / "1" / "a.png", (0, 0, 0))
    versions.append(dataset.version(str(tmp_path)))
    (tmp_path / "notes.txt").write_text("no samples")
    assert dataset.version(str(tmp_path)) == versions[-1]
    path.unlink()
    versions.append(dataset.version(str(tmp_path)))
    assert len(set(versions)) == 5


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_file_is_left_until_it_is_whole(tmp_path, share, caplog):
    dataset = Folder(shape=(1,), classes=1, test_fraction=0.3)
    npz(tmp_path / "a.npz", np.zeros((30, 1)), [0] * 30)
    late = tmp_path / "late.npz"
    npz(late, np.ones((30, 1)), [0] * 30)
    content = late.read_bytes()
    late.write_bytes(content[: int(share * len(content))])
    assert not any(pool.x.any() for pool in dataset.load(str(tmp_path)))
    assert "late.npz is not whole" in caplog.text
    before = dataset.version(str(tmp_path))
    late.write_bytes(content)
    assert dataset.version(str(tmp_path)) != before
    assert sum(int(pool.x.sum()) for pool in dataset.load(str(tmp_path))) == 30


@pytest.mark.parametrize(
    ("x", "y", "fault"),
    [
        (np.zeros((2, 3)), [0, 1], r"x has shape \(2, 3\).*\(2, 4\)"),
        (np.zeros((3, 4)), [0, 1], r"y want \(2, 4\)"),
        (np.zeros((2, 4)), [0, 2], "for each sample, from 0 to 1"),
        (np.zeros((2, 4)), [0.0, 1.0], "for each sample, from 0 to 1"),
        (np.zeros((2, 4)), [[0], [1]], "for each sample, from 0 to 1"),
        (np.zeros((1, 4)), 0, "for each sample, from 0 to 1"),
        (np.array([[0, np.nan, 0, 0], [0] * 4]), [0, 1], "row 1 has nan"),
        (np.array([[0] * 4, [0, 0, -np.inf, 0]]), [0, 1], "row 2 has -inf"),
        (np.array([[0] * 4, [0, 0, 0, 1e39]]), [0, 1], "row 2 has 1e.39.*scale x"),
        (np.zeros((2, 4), complex), [0, 1], "inputs are complex128, not numbers"),
        (np.zeros((2, 4), "M8[s]"), [0, 1], "inputs are datetime64.*not numbers"),
        (np.full((2, 4), "1"), [0, 1], "inputs are <U1, not numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, x, y, fault):
    npz(tmp_path / "a.npz", x, y)
    with pytest.raises(ConfigError, match=rf"a\.npz.*{fault}"):
        Folder(shape=(4,), classes=2).load(str(tmp_path))


def test_class_folders_go_by_number_or_by_name(tmp_path):
    for number in range(20):
        picture(tmp_path / "ship" / f"{number}.png", (0, 0, 0))
    for names in (("car",), ("car", "car"), ("car", "car", "ship")):
        with pytest.raises(ConfigError, match=r"names=.* a name of its own for each"):
            Folder(classes=2, names=names)
    named = Folder(classes=2, names=("car", "ship"), test_fraction=0.5)
    for pool in named.load(str(tmp_path)):
        assert set(pool.labels) == {1}
    with pytest.raises(ConfigError, match=r"ship is no class; name folders 0 to 9"):
        Folder().load(str(tmp_path))


def test_pictures_want_a_shape_of_pictures(tmp_path):
    picture(tmp_path / "0" / "a.png", (0, 0, 0))
    with pytest.raises(ConfigError, match=r"dataset\.shape=\(5,\).*1 or 3 channels"):
        Folder(shape=(5,)).load(str(tmp_path))


def test_an_empty_folder_and_an_empty_part_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no samples; put \.npz files"):
        Folder().load(str(tmp_path))
    npz(tmp_path / "a.npz", np.zeros((1, 4)), [0])
    with pytest.raises(ConfigError, match=r"no sample for the (train|test) part yet"):
        Folder(shape=(4,)).load(str(tmp_path))

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from cfl_flower.data.datasets.folders import (
    SUFFIXES,
    Cinic10,
    ImageFolder,
    MiniImagenet,
)
from cfl_flower.data.reading.samples import FORMATS
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import picture

CINIC = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def cinic10(root: Path) -> str:
    for part, shade in (("train", 0), ("valid", 100), ("test", 200)):
        for label, name in enumerate(CINIC):
            folder = root / "CINIC-10" / part / name
            picture(folder / "n01-b.png", (shade + label, 0, 7))
            picture(folder / "cifar10-a.png", (shade + label, 1, 7))
    return str(root)


def test_cinic10_has_classes_in_the_order_of_their_names(tmp_path: Path) -> None:
    dataset = Cinic10()
    train, test = dataset.load(cinic10(tmp_path))
    assert train.x.shape == (20, *dataset.shape)
    assert train.x.dtype == torch.uint8
    assert train.labels.tolist() == [label for label in range(10) for _ in range(2)]
    for pool, shade in ((train, 0), (test, 200)):
        assert pool.x[:, 0, 31, 31].tolist() == (shade + pool.labels).tolist()
        # Within a class, in the order of the file names.
        assert pool.x[:, 1, 0, 0].tolist() == [1, 0] * 10
        assert pool.x[:, 2].unique().tolist() == [7]


def test_cinic10_can_train_on_the_validation_part(tmp_path: Path) -> None:
    data_dir = cinic10(tmp_path)
    train, test = Cinic10(add_valid=True).load(data_dir)
    assert len(train.labels) == 40
    assert train.x[:, 0, 0, 0].tolist()[20:] == (100 + train.labels[20:]).tolist()
    assert len(test.labels) == 20
    assert len(Cinic10().load(data_dir)[0].labels) == 20


def test_each_channel_has_a_mean_and_a_deviation_of_its_own(tmp_path: Path) -> None:
    data_dir = cinic10(tmp_path)
    scaling = [[0.1, 0.2, 0.3], [0.2, 0.4, 0.5]]
    plain = Cinic10().load(data_dir)[1].inputs(slice(0, 20))
    found = Cinic10(normalise=scaling).load(data_dir)[1].inputs(slice(0, 20))
    mean, deviation = torch.tensor(scaling).reshape(2, 3, 1, 1)
    assert torch.allclose(found, (plain - mean) / deviation, atol=1e-6)


def test_a_picture_that_is_added_is_read(tmp_path: Path) -> None:
    data_dir = cinic10(tmp_path)
    Cinic10().load(data_dir)
    picture(tmp_path / "CINIC-10/train/truck/n02.JPG", (1, 2, 3))
    assert Cinic10().load(data_dir)[0].labels.tolist()[-3:] == [9, 9, 9]


def test_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    data_dir = cinic10(tmp_path)
    root = tmp_path / "CINIC-10"
    (root / "test/truck").rename(root / "test/lorry")
    with pytest.raises(ConfigError, match=r"test has other class .* lorry, truck"):
        Cinic10().load(data_dir)
    (root / "train/truck").rename(tmp_path / "truck")
    with pytest.raises(ConfigError, match=r"9 class folders; cinic10 has 10"):
        Cinic10().load(data_dir)


def test_a_class_without_pictures_is_refused(tmp_path: Path) -> None:
    data_dir = cinic10(tmp_path)
    for path in (tmp_path / "CINIC-10/train/deer").iterdir():
        path.unlink()
    with pytest.raises(ConfigError, match="deer has no image"):
        Cinic10().load(data_dir)


def test_mini_imagenet_resizes_photographs_of_any_size(tmp_path: Path) -> None:
    for part in ("train", "test"):
        folder = tmp_path / "mini-imagenet" / part
        picture(folder / "n01532829/n0153282900000005.jpg", (200, 100, 50), (90, 90))
        picture(folder / "n01558993/n0155899300000010.jpg", (20, 10, 5), (40, 40))
    dataset = MiniImagenet(size=16, classes=2)
    for pool in dataset.load(str(tmp_path)):
        assert pool.x.shape == (2, *dataset.shape) == (2, 3, 16, 16)
        assert pool.labels.tolist() == [0, 1]
        # JPEG is close, not exact.
        assert (pool.x[0, :, 8, 8].int() - torch.tensor([200, 100, 50])).abs().max() < 4
    with pytest.raises(ConfigError, match="2 class folders; mini_imagenet has 100"):
        MiniImagenet().load(str(tmp_path))


def test_an_own_folder_of_images_is_divided_or_has_a_test_set(tmp_path: Path) -> None:
    for number in range(5):
        picture(tmp_path / "images" / "owl" / f"{number}.bmp", 10)
        picture(tmp_path / "images" / "bee" / f"{number}.WebP", 20, (8, 6))
    known = ImageFolder(size=4, channels=1).complete(str(tmp_path))
    assert (known.shape, known.names) == ((1, 4, 4), ("bee", "owl"))
    train, test = known.load(str(tmp_path))
    assert train.x[:, 0, 0, 0].tolist() == (20 - 10 * train.labels).tolist()
    assert sorted(test.labels.tolist()) == [0, 1]
    for part, count in (("train", 3), ("test", 2)):
        for number in range(count):
            for name in ("owl", "bee"):
                picture(tmp_path / "divided" / part / name / f"{number}.png", 10)
    train, test = ImageFolder(folder="divided").load(str(tmp_path))
    assert (len(train.labels), len(test.labels)) == (6, 4)
    assert train.x.shape == (6, 3, 32, 32)


def test_an_own_folder_without_images_is_one_line(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "owl" / "1.png", 10)
    (tmp_path / "images" / "new").mkdir()
    with pytest.raises(ConfigError, match=r"new has no image; .*, or remove it"):
        ImageFolder().load(str(tmp_path))
    (tmp_path / "images" / "new").rmdir()
    (tmp_path / "images" / "bee" / "not-an-image").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"bee has no image; put \.png"):
        ImageFolder().load(str(tmp_path))


def test_every_suffix_of_the_formats_that_are_read_is_an_image_s() -> None:
    Image.init()
    known = Image.registered_extensions().items()
    assert {suffix for suffix, kind in known if kind in FORMATS} == {*SUFFIXES}


def test_all_kinds_of_images_are_read_and_no_other_files(tmp_path: Path) -> None:
    for name in ("owl", "bee"):
        for suffix in SUFFIXES:
            picture(tmp_path / "images" / name / f"1{suffix.upper()}", 10)
        (tmp_path / "images" / name / "notes.txt").write_text("none")
        picture(tmp_path / "images" / name / "deeper" / "1.png", 10)
    picture(tmp_path / "images" / "loose.png", 10)
    train, test = ImageFolder().load(str(tmp_path))
    assert len(train.labels) + len(test.labels) == 2 * len(SUFFIXES)


@pytest.mark.parametrize("parts", [("train",), ("train", "val"), ("Train", "Test")])
def test_parts_of_other_names_are_told(parts: tuple[str, ...], tmp_path: Path) -> None:
    for part in parts:
        for name in ("owl", "bee"):
            picture(tmp_path / "images" / part / name / "1.png", 10)
    with pytest.raises(ConfigError, match="folders of two parts train and test"):
        ImageFolder().load(str(tmp_path))


def test_a_folder_with_brackets_is_no_pattern(tmp_path: Path) -> None:
    for folder, names in (("i[24]", ("owl", "bee")), ("i2", ("ant", "cat", "dog"))):
        for name in names:
            for number in range(2):
                picture(tmp_path / folder / name / f"{number}.png", 10)
    assert ImageFolder(folder="i[24]").complete(str(tmp_path)).classes == 2


@pytest.mark.parametrize("junk", ["__MACOSX", ".git", "@eaDir", "lost+found"])
@pytest.mark.parametrize("name", [".DS_Store", "Thumbs.db", "._1.png", "desktop.ini"])
def test_what_systems_leave_is_no_class(junk: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / ".hidden" / "images"
    for kind in ("owl", "bee"):
        for number in range(2):
            picture(folder / kind / f"{number}.png", 10)
        (folder / kind / name).write_bytes(b"none")
    (folder / name).write_bytes(b"none")
    (folder / junk / "owl").mkdir(parents=True)
    (folder / junk / "owl" / name).write_bytes(b"none")
    known = ImageFolder(folder=".hidden/images").complete(str(tmp_path))
    assert known.names == ("bee", "owl")

import pytest
import torch
from PIL import Image

from cfl_flower.data.datasets.folders import SUFFIXES, ImageFolder
from cfl_flower.data.reading.pictures import FORMATS
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import picture


def test_folders_of_parts_have_classes_in_the_order_of_their_names(tmp_path):
    for part, shade in (("train", 0), ("test", 200)):
        for label, name in enumerate(("bee", "cat", "owl")):
            picture(tmp_path / "images" / part / name / "b.png", (shade + label, 0, 7))
            picture(tmp_path / "images" / part / name / "a.JPG", (shade + label, 99, 7))
    plain = ImageFolder().complete(str(tmp_path))
    train, test = plain.load(str(tmp_path))
    assert train.x.shape == (6, *plain.shape)
    assert train.x.dtype == torch.uint8
    assert train.labels.tolist() == test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    for pool, shade in ((train, 0), (test, 200)):
        # JPEG is close, not exact; within a class, in the order of the file names.
        reds = (pool.x[:, 0, 31, 31].int() - shade - pool.y).abs()
        assert reds.max() <= 3
        assert (pool.x[:, 1, 0, 0] > 50).tolist() == [True, False] * 3
    scaling = [[0.1, 0.2, 0.3], [0.2, 0.4, 0.5]]
    found = ImageFolder(normalise=scaling).load(str(tmp_path))[1].inputs(slice(0, 6))
    mean, deviation = torch.tensor(scaling).reshape(2, 3, 1, 1)
    pixels = test.inputs(slice(0, 6))
    assert torch.allclose(found, (pixels - mean) / deviation, atol=1e-6)
    picture(tmp_path / "images" / "train" / "owl" / "c.png", (1, 2, 3))
    assert ImageFolder().load(str(tmp_path))[0].labels.tolist()[-3:] == [2, 2, 2]


def test_an_own_folder_of_images_is_divided_or_has_a_test_set(tmp_path):
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


@pytest.mark.parametrize(
    ("more", "note"),
    [
        (["train/owl/readme.html"], "1 files are not read, such as train/owl/readme"),
        (["0.png", "val/owl/1.png"], "2 files are not read, such as 0.png"),
        (["test/owl/1.heic"], "1 files are not read, such as test/owl/1.heic"),
        ([".cache", "__MACOSX/owl/1.png"], ""),
    ],
)
def test_what_is_not_read_is_told(more, note, tmp_path):
    for part in ("train", "test"):
        for shade, name in enumerate(("bee", "owl")):
            for number in (0, 1):
                place = tmp_path / "images" / part / name / f"{number}.png"
                picture(place, 99 * shade + 10 * number + (part == "test"))
    assert ImageFolder().notes(str(tmp_path)) == []
    for path in more:
        place = tmp_path / "images" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    found = ImageFolder().notes(str(tmp_path))
    assert len(found) == bool(note)
    assert note in "".join(found)


def test_an_own_folder_without_images_is_one_line(tmp_path):
    picture(tmp_path / "images" / "owl" / "1.png", 10)
    (tmp_path / "images" / "new").mkdir()
    with pytest.raises(ConfigError, match=r"new has no image; .*, or remove it"):
        ImageFolder().load(str(tmp_path))
    (tmp_path / "images" / "new").rmdir()
    (tmp_path / "images" / "bee" / "not-an-image").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"bee has no image; put \.png"):
        ImageFolder().load(str(tmp_path))


def test_every_suffix_of_the_formats_that_are_read_is_an_image_s():
    Image.init()
    known = Image.registered_extensions().items()
    assert {suffix for suffix, kind in known if kind in FORMATS} == {*SUFFIXES}


def test_all_kinds_of_images_are_read_and_no_other_files(tmp_path):
    for name in ("owl", "bee"):
        for suffix in SUFFIXES:
            picture(tmp_path / "images" / name / f"1{suffix.upper()}", 10)
        (tmp_path / "images" / name / "notes.txt").write_text("none")
        picture(tmp_path / "images" / name / ".thumbs" / "1.png", 10)
    picture(tmp_path / "images" / "loose.png", 10)
    train, test = ImageFolder().load(str(tmp_path))
    assert len(train.labels) + len(test.labels) == 2 * len(SUFFIXES)
    picture(tmp_path / "images" / "owl" / "2026" / "may" / "1.JPG", 10)
    with pytest.raises(ConfigError, match=r"owl/2026/may would not be read; move them"):
        ImageFolder().load(str(tmp_path))


@pytest.mark.parametrize("parts", [("train",), ("train", "val"), ("Train", "Test")])
def test_parts_of_other_names_are_told(parts, tmp_path):
    for part in parts:
        for name in ("owl", "bee"):
            picture(tmp_path / "images" / part / name / "1.png", 10)
    with pytest.raises(ConfigError, match="folders of two parts train and test"):
        ImageFolder().load(str(tmp_path))


def test_a_folder_with_brackets_is_no_pattern(tmp_path):
    for folder, names in (("i[24]", ("owl", "bee")), ("i2", ("ant", "cat", "dog"))):
        for name in names:
            for number in range(2):
                picture(tmp_path / folder / name / f"{number}.png", 10)
    assert ImageFolder(folder="i[24]").complete(str(tmp_path)).classes == 2


@pytest.mark.parametrize("junk", ["__MACOSX", ".git", "@eaDir", "lost+found"])
@pytest.mark.parametrize("name", [".DS_Store", "Thumbs.db", "._1.png", "desktop.ini"])
def test_what_systems_leave_is_no_class(junk, name, tmp_path):
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

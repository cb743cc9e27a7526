from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfl_flower.data.datasets.listed import (
    FMOW_CLASSES,
    Cityscapes,
    Fmow,
    OpenImages,
    Waymo,
    listing,
)
from cfl_flower.data.reading.pool import Pool
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import owners, picture, times


def write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{','.join(map(str, row))}\n" for row in rows))


def greys(pool: Pool) -> list[int]:
    return [int(value) for value in pool.x[:, 0, 0, 0]]


FMOW_ROWS = [
    ("train", "2014-12-31T23:59:59Z", "31N", "airport"),
    ("train", "2015-01-01T00:00:00Z", "31N", "zoo"),
    ("seq", "2016-01-01T00:00:00Z", "1C", "unknown"),
    ("train", "2016-03-01T10:20:30.5Z", "18T", "barn"),
    ("val", "2015-01-02T09:00:00Z", "55H", "airport"),
    ("test", "2017-05-05T09:00:00Z", "18T", "zoo"),
]


def fmow(root: Path, rows: Sequence[Sequence[str]] = FMOW_ROWS) -> str:
    head = ("split", "img_filename", "timestamp", "visible", "utm", "category")
    lines = [(row[0], "a_rgb.jpg", row[1], 1, row[2], row[3]) for row in rows]
    write(root / "fmow_v1.1/rgb_metadata.csv", [head, *lines])
    for number, row in enumerate(rows):
        if row[0] != "seq":
            path = root / f"fmow_v1.1/images/rgb_img_{number}.png"
            picture(path, number + 1, (224, 224))
    return str(root)


def test_fmow_has_a_client_per_zone_and_the_days_from_2015_on(tmp_path):
    dataset = Fmow(size=8)
    train, test = dataset.load(fmow(tmp_path))
    assert train.x.shape == (2, *dataset.shape) == (2, 3, 8, 8)
    # An image is named by its line, of all lines.
    assert (greys(train), greys(test)) == ([2, 4], [5, 6])
    assert [FMOW_CLASSES[label] for label in train.labels] == ["zoo", "barn"]
    assert [FMOW_CLASSES[label] for label in test.labels] == ["airport", "zoo"]
    # 18T, 31N, 55H
    assert (owners(train).tolist(), owners(test).tolist()) == ([1, 0], [2, 0])
    assert times(train).tolist() == [16436, 16861]
    assert times(test).tolist() == [16437, 17291]


@pytest.mark.parametrize(
    ("time", "kind", "fault"),
    [("2016-13-41T", "zoo", "2016-13-41"), ("2016-03-01T", "zo", "it lacks 'zo'")],
)
def test_a_damaged_fmow_listing_is_named(tmp_path, time, kind, fault):
    data_dir = fmow(tmp_path, [*FMOW_ROWS, ("train", time, "31N", kind)])
    with pytest.raises(ConfigError, match=rf"rgb_metadata\.csv cannot be .*{fault}"):
        Fmow().load(data_dir)


OPEN_TRAIN = [
    # Class 7 three times, 3 and 5 twice, 9 and 4 once.
    ("b", "b0.jpg", "Cat", 7),
    ("b", "b1.jpg", "Cat", 7),
    ("b", "b2.jpg", "Dog", 3),
    ("a", "a0.jpg", "Cat", 7),
    ("a", "a1.jpg", "Owl", 5),
    ("a", "a2.jpg", "Elk", 9),
    ("c", "c0.jpg", "Dog", 3),
    ("d", "d0.jpg", "Owl", 5),
    ("d", "d1.jpg", "Yak", 4),
]
OPEN_TEST = [
    ("a", "t0.jpg", "Owl", 5),
    ("a", "t1.jpg", "Elk", 9),
    ("c", "t2.jpg", "Dog", 3),
    ("b", "t3.jpg", "Dog", 3),
]


def open_images(root: Path, test: Sequence[Sequence[object]] = OPEN_TEST) -> str:
    folder = root / "open_images"
    head = ("client_id", "sample_path", "label_name", "label_id")
    for part, rows, first in (("train", OPEN_TRAIN, 0), ("test", test, 100)):
        write(folder / "client_data_mapping" / f"{part}.csv", [head, *rows])
        for number, row in enumerate(rows):
            picture(folder / part / str(row[1]), first + number)
    return str(root)


def test_open_images_keeps_frequent_classes_and_clients_with_enough(tmp_path):
    dataset = OpenImages(size=4, classes=3, client_classes=2)
    train, test = dataset.load(open_images(tmp_path))
    # Kept: classes 3, 5, 7 as 0, 1, 2; clients a and b, who have two of them.
    assert greys(train) == pytest.approx([0, 1, 2, 3, 4], abs=1)
    assert train.labels.tolist() == [2, 2, 0, 2, 1]
    assert owners(train).tolist() == [1, 1, 1, 0, 0]
    assert greys(test) == pytest.approx([100, 103], abs=1)
    assert test.labels.tolist() == [1, 0]
    assert owners(test).tolist() == [0, 1]


def test_open_images_can_hold_out_of_the_training_mapping(tmp_path):
    settings = {"size": 4, "classes": 3, "client_classes": 2}
    data_dir = open_images(tmp_path, test=[("z", "t0.jpg", "Owl", 5)])
    with pytest.raises(ConfigError, match="no sample for the test part"):
        OpenImages(**settings).load(data_dir)
    train, test = OpenImages(**settings, test_fraction=0.4).load(data_dir)
    assert sorted(greys(train) + greys(test)) == pytest.approx([0, 1, 2, 3, 4], abs=1)
    assert sorted(owners(test).tolist()) == [0, 1]


def test_a_damaged_mapping_is_named(tmp_path):
    data_dir = open_images(tmp_path)
    path = tmp_path / "open_images/client_data_mapping/train.csv"
    whole = path.read_text()
    cut, other = whole[: whole.rindex(",Yak")], f"{whole[:-2]}x"
    for text, fault in ((cut, "row 9 is cut off"), (other, "invalid literal")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"train\.csv cannot be .*{fault}"):
            OpenImages().load(data_dir)


# Ekya's listings


def cityscapes(root: Path, header: bool) -> str:
    folder = root / "cityscapes"
    head = [("idx", "imgpath", "class", "x0", "y0", "x1", "y1")] if header else []
    # Frame, class and left edge, listed in the order of the folder, not of the frames;
    # class 6 is dropped.
    boxes = [(2, 5, 0), (2, 6, 0), (0, 0, 10), (0, 1, 0), (1, 2, 0)]
    name = "train/bonn/bonn_{:06d}_000019_leftImg8bit.png".format
    rows = [
        (idx, name(frame), label, left, 0, left + 10, 10)
        for idx, (frame, label, left) in enumerate(boxes)
    ]
    write(folder / "sample_lists/citywise/bonn_fine.csv", [*head, *rows])
    other = [(0, "val/ulm/ulm_0_0_leftImg8bit.png", 3, 0, 0, 20, 20)] * 2
    write(folder / "sample_lists/citywise/ulm_fine.csv", [*head, *other, other[0]])
    write(folder / "sample_lists/citywise/mainz_fine.csv", head)
    for frame in range(3):
        path = folder / "leftImg8bit" / str(rows[[2, 4, 0][frame]][1])
        picture(path, 10 * frame)
    image = np.asarray(Image.open(folder / "leftImg8bit" / str(rows[2][1]))).copy()
    image[:10, 10:] = 200
    Image.fromarray(image).save(folder / "leftImg8bit" / str(rows[2][1]))
    picture(folder / "leftImg8bit" / str(other[0][1]), 99)
    return str(root)


def joined(pools: tuple[Pool, Pool]) -> list[tuple[int, ...]]:
    found = []
    for pool in pools:
        columns = (owners(pool), times(pool), pool.labels, np.array(greys(pool)))
        found += zip(*(column.tolist() for column in columns), strict=True)
    return sorted(found)


@pytest.mark.parametrize("header", [False, True])
def test_cityscapes_cuts_a_citys_frames_into_blocks(tmp_path, header):
    dataset = Cityscapes(size=4, block=2, test_fraction=0.5)
    pools = dataset.load(cityscapes(tmp_path, header))
    # Owner, frame, class, grey.
    first = [(0, 0, 0, 200), (0, 0, 1, 0), (1, 1, 2, 10), (1, 2, 5, 20)]
    assert joined(pools)[:4] == first
    assert {sample[2:] for sample in joined(pools)[4:]} == {(3, 99)}
    assert owners(pools[1]).tolist()[:2] == [0, 1]


WAYMO_HEAD = (
    *("idx", "image name", "class", "timestamp", "weather", "location"),
    *("time of day", "segment", "frame index", "camera name", "label id"),
)


def waymo(root: Path, label: int = 3) -> str:
    folder = root / "waymo_classification_images"
    found = [
        ("seg1", "SIDE_LEFT", 4, 0),
        ("seg1", "FRONT", 7, 1),
        ("seg1", "FRONT", 2, label),
        ("seg2", "FRONT", 5, 2),
        ("seg2", "FRONT", 0, 0),
    ]
    rows = []
    for idx, (segment, camera, frame, kind) in enumerate(found):
        name = f"{frame:04d}_obj{idx}.jpg"
        picture(folder / segment / camera / name, 10 * idx)
        rows.append(
            (idx, name, kind, 1, "sunny", "sf", "Day", segment, frame, camera, "obj")
        )
    lists = folder / "sample_lists" / "citywise"
    write(lists / "sf_labels.csv", [WAYMO_HEAD, *rows])
    # Ekya also writes lists of ten segments each: the same samples again.
    write(lists / "sf_000_009_labels.csv", [WAYMO_HEAD, *rows[:3]])
    return str(root)


def test_waymo_has_a_client_per_camera_and_segment(tmp_path):
    dataset = Waymo(size=4, test_fraction=0.5)
    train, test = dataset.load(waymo(tmp_path))
    # Owner, frame, class, grey.
    assert joined((train, test)) == [
        (0, 2, 3, 20),
        (0, 7, 1, 10),
        (1, 4, 0, 0),
        (2, 0, 0, 40),
        (2, 5, 2, 30),
    ]
    # An owner of one sample keeps it for training.
    assert owners(test).tolist() == [0, 2]


def test_a_waymo_class_that_ekya_does_not_have_is_refused(tmp_path):
    words = r"sf_.*labels\.csv.*class is outside of 0 to 3"
    with pytest.raises(ConfigError, match=words):
        Waymo().load(waymo(tmp_path, label=4))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"a,b\n1,2\n3", "row 2 is cut off"),
        (b"a,c\n1,2\n", "not found: .'b'"),
        (b"", "No columns"),
        (b"a,b\n\xff\xfe,2\n", "utf-8"),
    ],
)
def test_a_damaged_table_is_one_line(tmp_path, content, fault):
    path = tmp_path / "list.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"list\.csv cannot be read \(.*{fault}"):
        listing(path, ["a", "b"], [])

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfl_flower.data.ekya import Cityscapes, Waymo
from cfl_flower.data.pool import Pool
from cfl_flower.errors import ConfigError
from cfl_flower.types import IntArray


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def picture(path: Path, grey: int, size: tuple[int, int] = (20, 20)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (grey, grey, grey)).save(path)


def listing(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{','.join(map(str, row))}\n" for row in rows))


def greys(pool: Pool) -> list[int]:
    return [int(value) for value in pool.x[:, 0, 0, 0]]


def owners(pool: Pool) -> IntArray:
    assert pool.owners is not None
    assert pool.owners.dtype == np.int64
    return pool.owners


def times(pool: Pool) -> IntArray:
    assert pool.times is not None
    assert pool.times.dtype == np.int64
    return pool.times


def cityscapes(root: Path, header: bool = False) -> str:
    folder = root / "cityscapes"
    head = [("idx", "imgpath", "class", "x0", "y0", "x1", "y1")] if header else []
    # Listed in the order of the folder, not of the frames; class 6 is dropped.
    rows = [
        (idx, f"train/bonn/bonn_{frame:06d}_000019_leftImg8bit.png", label, *box)
        for idx, (frame, label, box) in enumerate(
            [
                (2, 5, (0, 0, 10, 10)),
                (2, 6, (0, 0, 10, 10)),
                (0, 0, (10, 0, 20, 10)),
                (0, 1, (0, 0, 10, 10)),
                (1, 2, (0, 0, 10, 10)),
            ]
        )
    ]
    listing(folder / "sample_lists/citywise/bonn_fine.csv", [*head, *rows])
    other = [(0, "val/ulm/ulm_0_0_leftImg8bit.png", 3, 0, 0, 20, 20)] * 2
    listing(folder / "sample_lists/citywise/ulm_fine.csv", [*head, *other, other[0]])
    listing(folder / "sample_lists/citywise/mainz_fine.csv", head)
    for frame in range(3):
        path = folder / "leftImg8bit" / str(rows[[2, 4, 0][frame]][1])
        picture(path, 10 * frame)
    image = np.asarray(Image.open(folder / "leftImg8bit" / str(rows[2][1]))).copy()
    image[:10, 10:] = 200
    Image.fromarray(image).save(folder / "leftImg8bit" / str(rows[2][1]))
    picture(folder / "leftImg8bit" / str(other[0][1]), 99)
    return str(root)


def joined(pools: tuple[Pool, Pool]) -> list[tuple[int, ...]]:
    return sorted(
        sample
        for pool in pools
        for sample in zip(
            *(owners(pool).tolist(), times(pool).tolist()),
            *(pool.labels.tolist(), greys(pool)),
            strict=True,
        )
    )


@pytest.mark.parametrize("header", [False, True])
def test_cityscapes_cuts_a_citys_frames_into_blocks(
    tmp_path: Path, header: bool
) -> None:
    dataset = Cityscapes(size=4, block=2, test_fraction=0.5)
    if header:
        pools = dataset.load(cityscapes(tmp_path, header=True))
    else:
        pools = dataset.load(cityscapes(tmp_path))
    # Owner, frame, class, grey.
    assert joined(pools)[:4] == [
        (0, 0, 0, 200),
        (0, 0, 1, 0),
        (1, 1, 2, 10),
        (1, 2, 5, 20),
    ]
    assert {sample[2:] for sample in joined(pools)[4:]} == {(3, 99)}
    assert owners(pools[1]).tolist()[:2] == [0, 1]


def test_a_block_is_a_hundred_samples_by_default() -> None:
    assert Cityscapes().block == 100
    with pytest.raises(ConfigError, match=r"dataset\.block=0"):
        Cityscapes(block=0)


def test_a_damaged_sample_list_is_named(tmp_path: Path) -> None:
    data_dir = cityscapes(tmp_path)
    path = tmp_path / "cityscapes/sample_lists/citywise/bonn_fine.csv"
    path.write_text(path.read_text()[:-6])
    with pytest.raises(ConfigError, match=r"bonn_fine\.csv cannot be read .*cut off"):
        Cityscapes().load(data_dir)


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
    listing(lists / "sf_labels.csv", [WAYMO_HEAD, *rows])
    # Ekya also writes lists of ten segments each: the same samples again.
    listing(lists / "sf_000_009_labels.csv", [WAYMO_HEAD, *rows[:3]])
    return str(root)


def test_waymo_has_a_client_per_camera_and_segment(tmp_path: Path) -> None:
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


def test_a_waymo_class_that_ekya_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"sf_.*labels\.csv.*class is outside of 0 to 3"
    ):
        Waymo().load(waymo(tmp_path, label=4))


def test_missing_sample_lists_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"lacks cityscapes/sample_lists/citywise/\*_fine\.csv"
    ):
        Cityscapes().check(str(tmp_path))
    with pytest.raises(ConfigError, match=r"lacks waymo_classification_images/"):
        Waymo().check(str(tmp_path))

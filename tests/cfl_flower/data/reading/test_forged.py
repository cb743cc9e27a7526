"""Files that somebody else may have made to do harm: each is one line, or is read."""

import gzip
import io
import json
import pickle
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from PIL import Image

from cfl_flower.data.datasets.folders import ImageFolder
from cfl_flower.data.datasets.images import Mnist
from cfl_flower.data.datasets.leaf import Femnist
from cfl_flower.data.datasets.listed import Cityscapes, OpenImages, Waymo
from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.reading import files
from cfl_flower.errors import ConfigError
from tests.conftest import run_command

BOUND = 2**25
"""Bytes that a process may take beside what it has, in the tests of bombs."""


def refused(load: Callable[[str], object], data_dir: Path, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(str(data_dir))
    assert "\n" not in str(caught.value)


def npy(header: str, data: bytes = b"") -> bytes:
    """Return a .npy file with a header of one's own."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def described(shape: str, dtype: str = "<f4") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}"


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    "shape",
    [
        *("(-1, 4)", "(20, -4)", "(nan, 4)", "(1e400, 4)", "(2.5, 4)", "None", "(20,"),
        *(f"({2**62}, 0)", f"({2**62}, 4)", f"({2**40}, 4)", f"({10**30}, 4)"),
        *("(20, 5)", "(True, 4)", "()", "(" * 200, "[20, 4]", "(20, 4" + ", 1" * 70),
    ],
)
def test_an_npz_of_an_absurd_shape_is_one_line(shape, tmp_path):
    data = np.ones((20, 4), np.float32).tobytes()
    with ZipFile(tmp_path / "data.npz", "w", ZIP_DEFLATED) as file:
        file.writestr("x.npy", npy(described(shape), data))
        file.writestr("y.npy", saved(np.arange(20) % 4))
    refused(Npz().load, tmp_path, r"npz")


class Harm:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harmed"),)


def test_nothing_in_a_dataset_is_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = np.array([Harm()] * 20, dtype=object)
    np.savez(tmp_path / "data.npz", x=np.ones((20, 4)), y=objects, allow_pickle=True)
    refused(Npz().load, tmp_path, "Object arrays")
    (tmp_path / "data.npz").write_bytes(pickle.dumps(Harm()))
    refused(Npz().load, tmp_path, "cannot be read")
    assert not (tmp_path / "harmed").exists()


WITHIN_BOUNDS = f"""
import resource, sys
from pathlib import Path
from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.reading import files
from cfl_flower.errors import ConfigError
files.FREELY = {BOUND // 2}
pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + {BOUND}
resource.setrlimit(resource.RLIMIT_AS, (most, most))
for dataset in (Folder((4,)), Npz()):
    try: dataset.load(sys.argv[1])
    except ConfigError as error: print(error)
"""
"""Prints the errors of two loaders, which may take `BOUND` more than they have."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits and counts as on Linux")
def test_an_npz_bomb_is_not_unpacked(tmp_path):
    """It unpacks to a thousand times its size, three times `BOUND`."""
    with ZipFile(tmp_path / "data.npz", "w", ZIP_DEFLATED) as file:
        file.writestr("y.npy", saved(np.arange(20) % 4))
        data = bytes(3 * BOUND)
        file.writestr("x.npy", npy(described(f"({len(data) // 16}, 4)"), data))
    assert (tmp_path / "data.npz").stat().st_size < BOUND // 300
    done = run_command([sys.executable, "-c", WITHIN_BOUNDS, str(tmp_path)])
    assert done.returncode == 0, done.stderr
    of_folder, of_npz = done.stdout.splitlines()
    assert "savez, uncompressed" in of_npz
    assert "no sample" in of_folder


def test_what_a_packed_file_may_unpack_to_grows_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FREELY", 100_000)
    x, y = np.zeros((20, 2000), np.float32), np.arange(20) % 4
    np.savez_compressed(tmp_path / "data.npz", x=x, y=y)
    refused(Npz().load, tmp_path, r"data\.npz .* more than 100 times its size; save it")
    # Uncompressed, it takes the disk that it asks of the memory.
    np.savez(tmp_path / "data.npz", x=x, y=y)
    assert len(Npz().load(str(tmp_path))[0].labels) > 0


def test_a_gz_bomb_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FREELY", 2**20)
    folder = tmp_path / Mnist.folder
    folder.mkdir(parents=True)
    for stem in Mnist.stems:
        (folder / f"{stem}.gz").write_bytes(gzip.compress(bytes(2**24), 9))
    refused(Mnist().load, tmp_path, "MNIST .* more than 100 times its size; unpack it")


def huge_png(width: int, height: int) -> bytes:
    """Return a .png whose header claims a size that its data do not have."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(bytes(64))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n(harmed) (w) file closefile\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (huge_png(2**16, 2**16), "decompression bomb"),
        (huge_png(0, 8), "cannot be read"),
        (EPS, "cannot identify"),
        (b"<svg/>", "cannot identify"),
    ],
    ids=["bomb", "empty", "eps", "svg"],
)
def test_a_forged_image_is_one_line(content, words, tmp_path):
    for name in ("images/a/0.png", "images/b/0.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    refused(ImageFolder(size=8).load, tmp_path, words)


def test_an_image_is_not_decoded_over_and_over(tmp_path):
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG")
    data = np.frombuffer(file.getvalue(), np.uint8)
    limits = np.resize([0, len(data)], 21)
    labels = np.arange(20) % 4
    given = {"train_jpeg": data, "train_offsets": limits, "train_labels": labels}
    np.savez(tmp_path / "data.npz", **given)
    refused(Npz().load, tmp_path, "offsets of train_jpeg do not increase")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e308", "-1e400"])
def test_a_pixel_that_is_no_number_is_one_line(value, tmp_path):
    for part in ("train", "test"):
        path = tmp_path / f"femnist/data/{part}/all.json"
        path.parent.mkdir(parents=True)
        content = {"x": [[0.5] * 784], "y": [3]}
        text = json.dumps({"users": ["a"], "user_data": {"a": content}})
        path.write_text(text.replace("0.5", value, 1))
    refused(Femnist().load, tmp_path, r"all\.json .*user a has a pixel")


OUTSIDE = ["../own.png", "a/../../own.png", "{folder}/own.png", "a\nb.png", "a\x00.png"]


def listing(path: Path, head: str, row: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}\n{row}\n")


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["open_images", "cityscapes", "waymo"])
def test_a_listing_names_no_file_outside_of_its_folder(kind, name, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "own.png")
    named = '"' + name.format(folder=tmp_path) + '"'
    if kind == "open_images":
        load = OpenImages(size=8, client_classes=1).load
        for part in ("train", "test"):
            path = tmp_path / f"open_images/client_data_mapping/{part}.csv"
            listing(path, "client_id,sample_path,label_id", f"a,{named},1")
    elif kind == "cityscapes":
        load = Cityscapes(size=8).load
        path = tmp_path / "cityscapes/sample_lists/citywise/ulm_fine.csv"
        listing(path, "idx,imgpath,class,x0,y0,x1,y1", f"0,{named},1,0,0,8,8")
    else:
        load = Waymo(size=8).load
        path = tmp_path / (
            "waymo_classification_images/sample_lists/citywise/a_labels.csv"
        )
        head = "image name,class,segment,frame index,camera name"
        listing(path, head, f"{named},1,..,0,..")
    refused(load, tmp_path, f"list of {kind} .*which is no file below|No such file")


def test_links_in_ones_own_folder_of_data_are_followed(tmp_path):
    for number, label in enumerate("abab"):
        shared = tmp_path / f"shared/{label}/{number}.png"
        shared.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 60 * number).save(shared)
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a").symlink_to(tmp_path / "shared/a")
    (tmp_path / "images/b").mkdir()
    for path in (tmp_path / "shared/b").iterdir():
        (tmp_path / "images/b" / path.name).symlink_to(path)
    train, test = ImageFolder(size=8, test_fraction=0.5).load(str(tmp_path))
    assert len(train.labels) == len(test.labels) == 2
    device = Folder((1, 8, 8), names=("a", "b"), classes=2, test_fraction=0.5)
    assert len(device._files(str(tmp_path / "images"))) == 4

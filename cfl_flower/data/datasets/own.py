"""A device's own folder of samples, which grows while the device learns."""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cfl_flower.data.datasets.folders import SUFFIXES, class_folders, image_files
from cfl_flower.data.reading.files import (
    TestFraction,
    as_float32,
    of_one_type,
    open_npz,
)
from cfl_flower.data.reading.pictures import pixels
from cfl_flower.data.reading.pool import PARTS, Pool, divide, pools
from cfl_flower.data.reading.scaling import (
    Scaling,
    check_scaling,
    normalised,
    refuse_two_scales,
)
from cfl_flower.errors import ConfigError, intact
from cfl_flower.seeding import key
from cfl_flower.settings import Count, require, settings
from cfl_flower.types import IntArray

log = logging.getLogger(__name__)


class SampleFile(NamedTuple):
    """A file in a device's folder."""

    changed: int
    """Time of the last change, in nanoseconds since 1970."""
    size: int
    """Size in bytes."""
    path: Path
    label: int | None
    """Label of an image; a .npz has its own."""


@settings("dataset")
class Folder:
    """A device's own samples: class folders of images, and .npz files with x and y.

    Files are read in the order of their last change, so what arrives later comes last.
    A file that is not whole yet is left for the next reading. Whether a sample is for
    training or for testing depends on its file's name and its place therein only, so
    it stays what it was when others arrive.
    """

    shape: Annotated[tuple[Count, ...], Field(min_length=1)] = (3, 32, 32)
    """Shape of one input. Images are resized to it; 1 channel is grey, 3 are colour."""
    classes: Count = 10
    """Number of labels, L."""
    names: tuple[str, ...] = ()
    """Class folders in the order of the labels. Without names they are called 0, 1, …:
    a device need not have all classes, but the same number must mean the same class on
    every device."""
    test_fraction: TestFraction = 0.2
    """Share of the samples held out for testing."""
    normalise: Scaling | None = None
    """The mean and deviation in (x - mean) / deviation, two numbers, or two lists with
    one for each channel or input; pixels count from 0 to 1."""

    def __post_init__(self) -> None:
        ok = not self.names or len({*self.names}) == len(self.names) == self.classes
        allowed = f"a name of its own for each of the {self.classes} classes, or none"
        require(ok, "dataset.names", self.names, allowed)
        check_scaling(self.normalise, False, self.shape)

    def check(self, data_dir: str) -> None:
        """Do nothing: the server has no samples, and a device may get some later."""

    def version(self, data_dir: str) -> str:
        """Return what changes when a file comes, goes or changes; opens none."""
        return blake2b(repr(self._files(data_dir)).encode(), digest_size=8).hexdigest()

    def load(self, data_dir: str) -> tuple[Pool, Pool]:
        """Return the samples that are there now.

        The owner is 0 and the time the file's last change, in seconds. Raises
        `ConfigError` if a part has no sample, or a file's content does not fit the
        settings.
        """
        files = self._files(data_dir)
        if not files:
            raise ConfigError(
                f"data_dir={data_dir} has no samples; put .npz files with x and y "
                f"there, or {', '.join(SUFFIXES)} images in a folder per class"
            )
        found: dict[str, list[NDArray[Any]]] = defaultdict(list)
        numbers: dict[str, NDArray[Any]] = {}
        test = [np.zeros(0, bool)]
        for file in files:
            content = self._npz(file) if file.label is None else self._image(file)
            if content is None:
                log.warning("%s is not whole; left for the next reading", file.path)
                continue
            x, y = content
            # One file of bytes stands for all.
            numbers[str(file.path) if x.dtype != np.uint8 else "an image or file"] = x
            found["x"].append(x)
            found["y"].append(y)
            found["owner"].append(np.zeros(len(y), np.int64))
            found["time"].append(np.full(len(y), file.changed // 10**9))
            # A generator's first numbers do not depend on how many are drawn.
            name = file.path.relative_to(data_dir).as_posix()
            draws = np.random.default_rng(key(name)).random(len(y))
            test.append(draws < self.test_fraction)
        held_out = np.concatenate(test)
        for part in PARTS:
            if not np.any(held_out == (part == "test")):
                fault = f"data_dir={data_dir} has no sample for the {part} part yet"
                remedy = "add samples or change dataset.test_fraction"
                raise ConfigError(f"{fault}; {remedy}")
        refuse_two_scales(f"data_dir={data_dir}", numbers)
        found["x"] = of_one_type(found["x"])
        arrays = {name: np.concatenate(each) for name, each in found.items()}
        parts = divide(arrays, held_out)
        return pools(normalised(parts, self.normalise) if self.normalise else parts)

    def _files(self, data_dir: str) -> list[SampleFile]:
        """Return files with samples, the latest last."""
        root = Path(data_dir)
        found: list[tuple[Path, int | None]]
        found = [(path, None) for path in root.glob("*.npz")]
        names = self.names or tuple(map(str, range(self.classes)))
        for name, folder in class_folders(root).items():
            if name not in names:
                raise ConfigError(
                    f"{folder} is no class; name folders {names[0]} to {names[-1]}"
                )
            found += [(path, names.index(name)) for path in image_files(folder)]
        files = []
        for path, label in found:
            # It may go as soon as it is listed.
            with suppress(FileNotFoundError):
                state = path.stat()
                files.append(SampleFile(state.st_mtime_ns, state.st_size, path, label))
        return sorted(files, key=lambda file: (file.changed, file.path))

    def _image(self, file: SampleFile) -> tuple[NDArray[Any], IntArray] | None:
        """Return an image and its label, or None if it is not, or not yet, whole."""
        ok = len(self.shape) == 3 and self.shape[0] in (1, 3)
        allowed = f"1 or 3 channels, height and width, as {file.path} is an image"
        require(ok, "dataset.shape", self.shape, allowed)
        with suppress(ConfigError):
            image = pixels(file.path, [None], self.shape)
            return image, np.asarray([file.label], np.int64)
        return None

    def _npz(self, file: SampleFile) -> tuple[NDArray[Any], IntArray] | None:
        """Return the arrays of a file, or None if it is not, or not yet, whole."""
        path = file.path
        try:
            with open_npz(path) as stored:
                content = dict(stored)
        except ConfigError:
            return None
        if lacking := {"x", "y"} - set(content):
            raise ConfigError(f"{path} has no array {', '.join(sorted(lacking))}")
        x = content["x"]
        y = content["y"]
        wanted = (y.size, *self.shape)
        if x.shape != wanted:
            raise ConfigError(
                f"{path}: x has shape {x.shape}; dataset.shape and y want {wanted}"
            )
        whole = y.ndim == 1 and y.dtype.kind in "iu"
        if not whole or np.any((y < 0) | (y >= self.classes)):
            raise ConfigError(
                f"{path}: y must be an integer for each sample, from 0 to "
                f"{self.classes - 1} (dataset.classes={self.classes})"
            )
        with intact(path, "correct it"):
            x = x if x.dtype == np.uint8 else as_float32(x)
        return x, y.astype(np.int64)

"""Datasets as a table of samples: content, label, owner and time of each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from cfl_flower.data.reading.files import FileDataset, blank, held_out, intact, numbered
from cfl_flower.data.reading.pool import PARTS, Parts
from cfl_flower.data.reading.scaling import Scaling, check_scaling, normalised
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Count, settings

TAKEN_AT_ONCE = 1024
"""Images decoded before they are written: bounds the memory a large set takes."""


FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""What is read, whatever a file is called: for EPS, Pillow starts Ghostscript."""


class Sample(NamedTuple):
    """One sample as the files of a dataset list it."""

    content: Any
    """What its input is made from: for an image a `Crop`."""
    label: int
    owner: str | None = None
    time: int | None = None
    """In the dataset's own unit."""


class SampleTable(FileDataset):
    """A dataset whose files list samples."""

    @abstractmethod
    def samples(self, data_dir: str) -> Mapping[str, list[Sample]]:
        """Return the samples of the two parts, or raise `ConfigError`."""

    @abstractmethod
    def inputs(self, contents: Sequence[Any], data_dir: str) -> NDArray[Any]:
        """Return the inputs of samples, shape (n, *shape)."""

    def arrays(self, data_dir: str) -> Parts:
        """Read the samples; owners are numbered by name over both parts."""
        listed = self.samples(data_dir)
        for part, samples in listed.items():
            if not samples:
                raise ConfigError(
                    f"{self.name} in data_dir={data_dir} has no sample for the {part} "
                    "part that meets the dataset's conditions"
                )
        number = numbered(sample.owner for part in listed.values() for sample in part)
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for part, samples in listed.items():
            contents, labels, owners, times = zip(*samples, strict=True)
            columns = {"y": labels, "owner": [*map(number.get, owners)], "time": times}
            parts[part] = {"x": self.inputs(contents, data_dir)}
            for name, column in columns.items():
                if column[0] is not None:
                    parts[part][name] = np.asarray(column, np.int64)
        return parts


@settings("dataset")
class ImageTable(SampleTable):
    """A dataset whose files list colour images of any size, or boxes in them."""

    size: Count = 64
    """Height and width to which images are resized."""
    normalise: Scaling | None = None
    """The mean and deviation in (x / 255 - mean) / deviation, instead of x / 255: two
    numbers for all pixels, or two lists with one for each channel."""

    def __post_init__(self) -> None:
        check_scaling(self.normalise, False, self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return (3, self.size, self.size)

    def arrays(self, data_dir: str) -> Parts:
        """Read the samples, and scale their pixels if asked."""
        parts = super().arrays(data_dir)
        return parts if self.normalise is None else normalised(parts, self.normalise)

    def inputs(self, contents: Sequence[Crop], data_dir: str) -> NDArray[np.uint8]:
        """Read the images, each resized to the dataset's shape."""
        del data_dir
        return images(contents, self.shape)


def split(samples: list[Sample], fraction: float) -> dict[str, list[Sample]]:
    """Hold out a share of each owner's samples for testing."""
    number = numbered(sample.owner for sample in samples)
    owners = np.asarray([number[sample.owner] for sample in samples], np.int64)
    test = held_out(owners, fraction)
    of_part = {part: np.flatnonzero(test == (part == "test")) for part in PARTS}
    return {part: [samples[row] for row in rows] for part, rows in of_part.items()}


Box: TypeAlias = tuple[int, int, int, int]
"""Left, top, right, bottom, in pixels."""


class Crop(NamedTuple):
    """One input: an image, or a box in it."""

    path: Path | BytesIO
    """Of the image, or its bytes."""
    box: Box | None = None


def pixels(
    path: Path | BytesIO, boxes: Sequence[Box | None], shape: tuple[int, ...]
) -> NDArray[np.uint8]:
    """Read boxes of one image, each resized to a shape (1 or 3, height, width).

    Raises `ConfigError`.
    """
    channels, height, width = shape
    found = np.empty((len(boxes), height, width, channels), np.uint8)
    where = path if isinstance(path, Path) else "an image of the dataset"
    with intact(where), Image.open(path, formats=FORMATS) as file:
        if file.mode[0] in "IF":
            raise ValueError(f"its pixels are {file.mode}, not bytes; convert it")
        image = _as_seen(file).convert("RGB" if channels == 3 else "L")
        for row, box in enumerate(boxes):
            part = image.crop(box) if box else image
            part = part.resize((width, height), Image.Resampling.BILINEAR)
            found[row] = np.asarray(part).reshape(height, width, channels)
    return found.transpose(0, 3, 1, 2)


def _as_seen(file: Image.Image) -> Image.Image:
    """Return a picture as viewers show it: upright, and on a white ground."""
    image = ImageOps.exif_transpose(file)
    if not image.has_transparency_data:
        return image
    ground = Image.new("RGBA", image.size, "white")
    ground.alpha_composite(image.convert("RGBA"))
    return ground


def images(crops: Iterable[Crop], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read inputs into an array on disk, (n, *shape), or raise `ConfigError`."""
    # Boxes of one image that follow each other cost one decoding.
    groups = [
        (path, [crop.box for crop in group])
        for path, group in groupby(crops, key=attrgetter("path"))
    ]
    x = blank((sum(len(boxes) for _, boxes in groups), *shape), np.uint8)
    done = 0
    with ThreadPoolExecutor() as threads:
        for start in range(0, len(groups), TAKEN_AT_ONCE):
            some = groups[start : start + TAKEN_AT_ONCE]
            for found in threads.map(lambda of: pixels(of[0], of[1], shape), some):
                x[done : done + len(found)] = found
                done += len(found)
    return x

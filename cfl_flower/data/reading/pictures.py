"""Pictures: upright, on white, in boxes, of one size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from cfl_flower.data.reading.files import blank
from cfl_flower.errors import intact

TAKEN_AT_ONCE = 1024
"""Images decoded before they are written: bounds the memory a large set takes."""


FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""Formats that are read, whatever a file is called: for EPS, Pillow starts
Ghostscript."""


Box: TypeAlias = tuple[int, int, int, int]
"""Left, top, right, bottom, in pixels."""


class Crop(NamedTuple):
    """One input: an image, or a box in it."""

    path: Path | BytesIO
    """Path of the image, or its bytes."""
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

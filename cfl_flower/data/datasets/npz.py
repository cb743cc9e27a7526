"""A dataset in one .npz file."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cfl_flower.data.reading.files import channels_first
from cfl_flower.data.reading.inferred import OWN_FILE, InferredDataset
from cfl_flower.data.reading.packed import open_npz
from cfl_flower.data.reading.pool import PARTS, Arrays, Parts
from cfl_flower.errors import ConfigError
from cfl_flower.settings import settings


@settings("dataset")
class Npz(InferredDataset):
    """Arrays ``x_train``, ``y_train``, ``x_test`` and ``y_test``, or ``x`` and ``y``.

    ``train_images``, ``train_labels`` and so on will do too. Bytes are images of shape
    (n, height, width, channels) or (n, height, width); what is not bytes is taken as
    float32 inputs as they are, with the channels of images first or last. Instead of
    images there may be JPEG files end to end, as the bytes ``train_jpeg`` and the n + 1
    limits ``train_offsets``.
    """

    file: str = "data.npz"
    """Absolute, or below data_dir."""
    name: ClassVar[str] = "the .npz file"
    remedy: ClassVar[str] = OWN_FILE

    def files(self) -> tuple[str, ...]:
        """Return the file."""
        return (self.file,)

    @property
    def called(self) -> str:
        """What errors call it."""
        return f"{self.name} {self.file}"

    def read(self, data_dir: str) -> Parts:
        """Read the file."""
        with open_npz(Path(data_dir, self.file)) as stored:
            if "x" in stored and "y" in stored:
                return {"train": _named(stored, "x", "y")}
            divided = any("test" in name for name in stored)
            parts = PARTS if divided else PARTS[:1]
            return {part: _part(stored, part) for part in parts}


def _part(stored: Mapping[str, Any], part: str) -> Arrays:
    """Return the inputs and labels of a part, or raise `ConfigError`."""
    if f"{part}_jpeg" in stored:
        images = _unpack(stored, part)
        return {"x": _inputs(images), "y": _labels(stored[f"{part}_labels"])}
    if f"x_{part}" in stored:
        return _named(stored, f"x_{part}", f"y_{part}")
    return _named(stored, f"{part}_images", f"{part}_labels")


def _named(stored: Mapping[str, Any], x: str, y: str) -> Arrays:
    """Return two arrays of a file as inputs and labels, or raise `ConfigError`."""
    if x not in stored or y not in stored:
        raise ConfigError(
            f"the .npz file has the arrays {', '.join(stored)}; call them x and y, or "
            "x_train, y_train, x_test and y_test"
        )
    return {"x": _inputs(stored[x]), "y": _labels(stored[y])}


def _labels(y: NDArray[Any]) -> NDArray[Any]:
    """Return labels as numbers or text, shape (n,)."""
    if y.dtype.kind not in "iufbSU":
        raise ValueError(f"labels are {y.dtype}, neither numbers nor names")
    y = np.char.decode(y, "utf-8") if y.dtype.kind == "S" else y
    # Some have a label in a row of its own.
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def _inputs(x: NDArray[Any]) -> NDArray[Any]:
    """Return images with channels first, bytes as such, and the rest as float32."""
    if x.dtype.kind not in "iufb":
        raise ValueError(f"inputs are {x.dtype}, not numbers")
    first, last = (x.ndim == 4 and x.shape[axis] in (1, 3) for axis in (1, 3))
    if x.dtype != np.uint8:
        x = x.astype(np.float32)
        return channels_first(x) if last and not first else x
    if x.ndim not in (3, 4):
        return x.astype(np.float32)
    return x if first and not last else channels_first(x)


def _unpack(stored: Mapping[str, Any], part: str) -> NDArray[np.uint8]:
    data = stored[f"{part}_jpeg"].tobytes()
    limits = stored[f"{part}_offsets"]
    # Else one image of a small file could be decoded any number of times.
    if np.any(limits[1:] <= limits[:-1]):
        raise ValueError(f"{part}_offsets do not increase")
    files = [BytesIO(data[start:end]) for start, end in pairwise(limits)]
    return np.stack([np.asarray(Image.open(file, formats=["JPEG"])) for file in files])

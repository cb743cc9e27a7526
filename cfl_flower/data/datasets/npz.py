"""A dataset in one .npz file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cfl_flower.data.datasets.missing import NA_VALUES
from cfl_flower.data.reading.files import as_float32, channels_first, open_npz
from cfl_flower.data.reading.inferred import OWN_FILE, InferredDataset, noted
from cfl_flower.data.reading.pool import PARTS, Parts
from cfl_flower.errors import ConfigError
from cfl_flower.settings import settings

WHOLE = re.compile("x|y|owner|time")
"""Names of the arrays that are read where x and y are there."""

DIVIDED = re.compile(
    "(x|y|owner|time)_(train|test)|(train|test)_(images|labels|jpeg|offsets)"
)
"""Names of the arrays that are read where they are not."""


@settings("dataset")
class Npz(InferredDataset):
    """Arrays ``x_train``, ``y_train``, ``x_test`` and ``y_test``, or ``x`` and ``y``.

    ``train_images``, ``train_labels`` and so on will do too. Bytes are images of shape
    (n, height, width, channels) or (n, height, width); what is not bytes is taken as
    float32 inputs as they are, with the channels of images first or last. Instead of
    images there may be JPEG files end to end, as the bytes ``train_jpeg`` and the n + 1
    limits ``train_offsets``. Beside ``x`` may be ``owner``, whose a sample is, and
    ``time``, when it was taken, in integers; beside ``x_train``, ``owner_train`` and
    ``time_train``.
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
                if more := [each for each in stored if each.startswith(("x_", "y_"))]:
                    raise ConfigError(
                        f"{self.called} has x and y, and {', '.join(more)} as well; "
                        "keep x and y alone, or x_train, y_train, x_test and y_test"
                    )
                whole = {"train": _part(stored, "x", "y", "")}
                return self._noted(whole, stored, WHOLE)
            divided = any("test" in name for name in stored)
            found = {}
            for part in PARTS if divided else PARTS[:1]:
                x = f"x_{part}"
                y = f"y_{part}"
                if x not in stored:
                    x = f"{part}_images"
                    y = f"{part}_labels"
                found[part] = _part(stored, x, y, f"_{part}")
            return self._noted(found, stored, DIVIDED)

    def _noted(
        self, parts: Parts, stored: Iterable[str], read: re.Pattern[str]
    ) -> Parts:
        """Return the parts with a note of the arrays that are in none."""
        left = [name for name in stored if not read.fullmatch(name)]
        told = f"{self.called}: {', '.join(left)} is not read"
        return noted(parts, told) if left else parts


def _times(times: NDArray[Any]) -> NDArray[Any]:
    """Return integers, or dates in microseconds since 1970."""
    if times.dtype.kind not in "iuM":
        raise ValueError(f"times are {times.dtype}, neither integers nor datetime64")
    _require_known(times, "times")
    whole = times.astype("datetime64[us]") if times.dtype.kind == "M" else times
    if times.dtype.kind == "u" and (times >= 2**63).any():
        raise ValueError(f"times such as {times.max()} are above int64; shift them")
    return whole.astype(np.int64)


def _part(
    stored: Mapping[str, Any], x: str, y: str, ending: str
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part, or raise `ConfigError`."""
    jpeg = f"{ending[1:]}_jpeg"
    if jpeg not in stored and (x not in stored or y not in stored):
        fault = f"the .npz file has the arrays {', '.join(stored)}"
        remedy = "call them x and y, or x_train, y_train, x_test and y_test"
        raise ConfigError(f"{fault}; {remedy}")
    pixels = _unpack(stored, jpeg) if jpeg in stored else stored[x]
    found = {"x": _inputs(pixels), "y": _labels(stored[y])}
    if f"owner{ending}" in stored:
        found["owner"] = _labels(stored[f"owner{ending}"])
    if f"time{ending}" in stored:
        found["time"] = _times(stored[f"time{ending}"])
    return found


def _labels(y: NDArray[Any]) -> NDArray[Any]:
    """Return labels as numbers or text, shape (n,)."""
    if y.dtype.kind not in "iufbSU":
        raise ValueError(f"labels are {y.dtype}, neither numbers nor names")
    y = np.char.decode(y, "utf-8") if y.dtype.kind == "S" else y
    _require_known(y, "labels or owners")
    # Some have a label in a row of its own.
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def _require_known(array: NDArray[Any], what: str) -> None:
    """Raise `ValueError` for a value that is missing, or a text that says so."""
    if array.dtype.kind in "fM":
        missing = ~np.isfinite(array)
    elif array.dtype.kind == "U":
        missing = np.isin(np.char.strip(array), ["", *NA_VALUES])
    else:
        return
    if missing.any():
        place = np.argwhere(missing)[0]
        value = array[tuple(place)]
        raise ValueError(
            f"{what}: row {place[0] + 1} has {str(value)!r}, no value; leave it out"
        )


def _inputs(x: NDArray[Any]) -> NDArray[Any]:
    """Return images with channels first, bytes as such, and the rest as floats."""
    first, last = (x.ndim == 4 and x.shape[axis] in (1, 3) for axis in (1, 3))
    if x.dtype != np.uint8:
        kept = as_float32(x)
        # In float64 until it is scaled, as tables are.
        x = x.astype(np.float64) if x.dtype.itemsize > kept.itemsize else kept
        return channels_first(x) if last and not first else x
    plain = x.ndim not in (3, 4) or (first and not last)
    return x if plain else channels_first(x)


def _unpack(stored: Mapping[str, Any], name: str) -> NDArray[np.uint8]:
    data = stored[name].tobytes()
    limits = stored[name.replace("jpeg", "offsets")]
    # Else one image of a small file could be decoded any number of times.
    if np.any(limits[1:] <= limits[:-1]):
        raise ValueError(f"the offsets of {name} do not increase")
    files = [BytesIO(data[start:end]) for start, end in pairwise(limits)]
    return np.stack([np.asarray(Image.open(file, formats=["JPEG"])) for file in files])

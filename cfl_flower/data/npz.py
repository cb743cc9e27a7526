"""A dataset in one .npz file, split into training and test samples already."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from cfl_flower.data.pool import PARTS, Arrays, Parts
from cfl_flower.data.reading import FileDataset, channels_first, intact, require_fit
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Count, settings


@settings("dataset")
class Npz(FileDataset):
    """Arrays ``train_images``, ``train_labels``, ``test_images`` and ``test_labels``.

    Images are bytes of shape (n, height, width, channels) or (n, height, width); what
    is not bytes is taken as float32 inputs of the given shape. Instead of images there
    may be JPEG files end to end, as the bytes ``train_jpeg`` and the n + 1 limits
    ``train_offsets``.
    """

    file: str = "data.npz"
    """Absolute, or below data_dir."""
    shape: Annotated[tuple[Count, ...], Field(min_length=1)] = (3, 32, 32)
    """Shape of one input, channels first."""
    classes: Count = 10
    """Number of labels, L."""
    name: ClassVar[str] = "the .npz file"

    def files(self) -> tuple[str, ...]:
        """Return the file."""
        return (self.file,)

    def arrays(self, data_dir: str) -> Parts:
        """Read the file."""
        path = Path(data_dir, self.file)
        parts: dict[str, Arrays] = {}
        with intact(path), np.load(path) as stored:
            for part in PARTS:
                packed = f"{part}_jpeg" in stored
                x = _unpack(stored, part) if packed else stored[f"{part}_images"]
                x = channels_first(x) if x.dtype == np.uint8 else x.astype(np.float32)
                y = stored[f"{part}_labels"].astype(np.int64)
                require_fit(path, x, y, self.shape, self.classes)
                if not len(y):
                    raise ConfigError(f"{path} has no sample in {part}_labels; mend it")
                parts[part] = {"x": x, "y": y}
        return parts


def _unpack(stored: Mapping[str, Any], part: str) -> NDArray[np.uint8]:
    data, limits = stored[f"{part}_jpeg"].tobytes(), stored[f"{part}_offsets"]
    files = [BytesIO(data[start:end]) for start, end in pairwise(limits)]
    return np.stack([np.asarray(Image.open(file)) for file in files])

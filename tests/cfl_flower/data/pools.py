"""What tests ask of pools, and pictures to fill them with."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfl_flower.data.reading.files import FileDataset
from cfl_flower.data.reading.pool import Pool
from cfl_flower.errors import ConfigError
from cfl_flower.types import IntArray


def owners(pool: Pool) -> IntArray:
    assert pool.owners.dtype == np.int64
    return pool.owners


def times(pool: Pool) -> IntArray:
    assert pool.times.dtype == np.int64
    return pool.times


def picture(
    path: Path, colour: int | tuple[int, int, int], size: tuple[int, int] = (32, 32)
) -> None:
    """Save a picture of one colour, or of a grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(path)


def real(dataset: FileDataset) -> tuple[Pool, Pool]:
    """Return the samples of files in `CFL_DATA_DIR`, or skip the test without them."""
    data_dir = os.environ.get("CFL_DATA_DIR", "")
    try:
        dataset.check(data_dir)
    except ConfigError as missing:
        pytest.skip(str(missing))
    return dataset.load(data_dir)

"""Datasets as a table of samples: content, label, owner, time and part of each."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfl_flower.data.reading.files import FileDataset, held_out, inside
from cfl_flower.data.reading.pictures import Crop, images
from cfl_flower.data.reading.pool import Parts, divide
from cfl_flower.errors import ConfigError, intact
from cfl_flower.settings import Count, settings

BOX = ["x0", "y0", "x1", "y1"]
"""Columns of the part of an image that is a sample: left, top, right, bottom."""


class SampleTable(FileDataset):
    """A dataset whose files list samples."""

    test_fraction: float = 0
    """Share of each owner's samples held out where the lists have no parts."""

    @abstractmethod
    def samples(self, data_dir: str) -> pd.DataFrame:
        """Return a row for each sample, or raise `ConfigError`.

        Columns are ``content``, of which its input is made (for an image its path below
        data_dir, perhaps with a `BOX`), ``label``, ``owner``, a name, perhaps ``time``,
        in the dataset's own unit, and ``part`` where the lists have parts.
        """

    @abstractmethod
    def inputs(self, rows: pd.DataFrame, data_dir: str) -> NDArray[Any]:
        """Return the inputs of some of the samples, shape (n, *shape)."""

    def arrays(self, data_dir: str) -> Parts:
        """Read the samples; owners are numbered by name over both parts."""
        rows = self.samples(data_dir)
        # In the order of the names.
        owners = pd.factorize(rows["owner"], sort=True)[0]
        if "part" in rows:
            test = rows["part"].to_numpy() == "test"
        else:
            test = held_out(owners, self.test_fraction)
        columns = {"y": rows["label"], "owner": owners}
        if "time" in rows:
            columns["time"] = rows["time"]
        integers = {key: np.asarray(it, np.int64) for key, it in columns.items()}
        parts = {}
        for part, arrays in divide(integers, test).items():
            if not len(arrays["y"]):
                raise ConfigError(
                    f"{self.name} in data_dir={data_dir} has no sample for the {part} "
                    "part that meets the dataset's conditions"
                )
            own = rows[test == (part == "test")]
            parts[part] = {"x": self.inputs(own, data_dir), **arrays}
        return parts


@settings("dataset")
class ImageTable(SampleTable):
    """A dataset whose files list colour images of any size, or boxes in them."""

    size: Count = 64
    """Height and width to which images are resized."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return (3, self.size, self.size)

    def inputs(self, rows: pd.DataFrame, data_dir: str) -> NDArray[np.uint8]:
        """Read the images, each resized to the dataset's shape."""
        folder = Path(data_dir)
        with intact(f"the list of {self.name}"):
            paths = [inside(folder, name) for name in rows["content"]]
        if BOX[0] not in rows:
            return images(map(Crop, paths), self.shape)
        boxes = rows[BOX].itertuples(index=False, name=None)
        return images(map(Crop, paths, boxes), self.shape)

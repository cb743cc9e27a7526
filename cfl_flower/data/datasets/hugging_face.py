"""Datasets of Hugging Face, and the partitioners of Flower Datasets."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from cfl_flower.data.datasets.columns import column_names
from cfl_flower.data.datasets.tables import Frames, TableDataset
from cfl_flower.data.reading.files import intact, may_fetch
from cfl_flower.data.reading.pool import cache_dir
from cfl_flower.data.reading.samples import Crop
from cfl_flower.errors import ConfigError
from cfl_flower.settings import known_names, require, require_package, settings
from cfl_flower.types import IntArray

ROW = "__row__"
OWNER = "__owner__"
"""Columns with the number of a sample, and of the partition it is in."""


@settings("dataset")
class HuggingFace(TableDataset):
    """A dataset of the Hugging Face hub, or a folder of one.

    Its columns are named as those of other tables are, and one may hold images.
    """

    path: str = ""
    """Its name on the hub, such as `uoft-cs/cifar10`, or a folder: absolute, or below
    data_dir."""
    subset: str | None = None
    """Which of the dataset's configurations, where it has several."""
    train: str = "train"
    """The split to train on."""
    test: str | None = "test"
    """The split to test on; null, or one that is not there, holds `test_fraction`
    out."""
    partitioner: dict[str, Any] | None = None
    """A partitioner of flwr-datasets, by its `kind`, and its arguments. It divides the
    training split into the owners of `partition=natural`, and of each `test_fraction`
    is held out."""
    name: ClassVar[str] = "the Hugging Face dataset"

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "a name on the hub, or a folder"
        require(bool(self.path), "dataset.path", repr(self.path), allowed)
        allowed = "null with dataset.partitioner, which has the owners"
        ok = not (self.owner and self.partitioner)
        require(ok, "dataset.owner", self.owner, allowed)
        require_package("flwr_datasets", "dataset", "hf")

    def files(self) -> tuple[str, ...]:
        """Return what is in the folder, if it is one."""
        return (f"{self.path}/**/*",)

    def check(self, data_dir: str) -> None:
        """Do nothing: what is no folder may be on the hub."""

    def require_below(self, data_dir: str) -> None:
        """Require a folder below a device's own; the hub's datasets are no device's."""
        super().require_below(data_dir)
        there = Path(data_dir, self.path).is_dir()
        allowed = f"a folder with files below data-dir={data_dir}"
        require(there, "dataset.path", self.path, allowed)

    @property
    def owner_column(self) -> str | None:
        """Return the column that says whose a sample is."""
        return self.owner if self.partitioner is None else OWNER

    def frames(self, data_dir: str) -> Frames:
        """Return the rows of the splits; images are not decoded yet."""
        splits = self._splits(data_dir)
        if self.train not in splits:
            allowed = f"one of {', '.join(splits)}"
            require(False, "dataset.train", self.train, allowed)
        train = splits[self.train]
        if self.partitioner is not None:
            owned = self._frame(train).assign(**{OWNER: self._owners(train)})
            return [("train", f"split {self.train}", owned[owned[OWNER] >= 0])]
        found = [("train", f"split {self.train}", self._frame(train))]
        if self.test and self.test in splits:
            test = self._frame(splits[self.test])
            found.append(("test", f"split {self.test}", test))
        return found

    def crop(self, cell: Any) -> Crop:
        """Return the image in a value of the column `image`, or where it is."""
        return Crop(BytesIO(cell["bytes"]) if cell["bytes"] else Path(cell["path"]))

    def _splits(self, data_dir: str) -> Mapping[str, Any]:
        """Return the splits by name, or raise `ConfigError`."""
        # Takes a second and a half to import.
        import datasets  # noqa: PLC0415

        datasets.disable_progress_bars()
        # What partitioners filter would else be written beside the dataset's files.
        datasets.disable_caching()
        folder = Path(data_dir, self.path)
        allowed = "a folder, on a device"
        require(may_fetch() or folder.is_dir(), "dataset.path", self.path, allowed)
        saved = [folder / "dataset_dict.json", folder / "state.json"]
        path = str(folder) if folder.is_dir() else self.path
        remedy = (
            f"name a folder below data_dir={data_dir}, or a dataset of the hub with "
            "its dataset.subset; a split on disk needs samples"
        )
        with intact(f"dataset.path={self.path}", remedy, "loaded"):
            if any(map(Path.is_file, saved)):
                loaded = datasets.load_from_disk(path)
            else:
                # What it makes of a folder's files stands with what we make of them.
                own = str(cache_dir() / "datasets") if folder.is_dir() else None
                loaded = datasets.load_dataset(path, self.subset, cache_dir=own)
        return loaded if isinstance(loaded, Mapping) else {self.train: loaded}

    def _frame(self, split: Any) -> pd.DataFrame:
        """Return a split as a table whose labels have their names."""
        import datasets  # noqa: PLC0415

        if self.image in split.features:
            known = isinstance(split.features[self.image], datasets.Image)
            require(known, "dataset.image", self.image, "a column of images")
            split = split.cast_column(self.image, datasets.Image(decode=False))
        frame: pd.DataFrame = split.to_pandas()
        names = getattr(split.features.get(self.label), "names", None)
        if names:
            # Where a label is not known, it is -1.
            named = dict(enumerate(names))
            frame[self.label] = [named.get(number, "") for number in frame[self.label]]
        frame.columns = pd.Index(column_names(frame.columns))
        return frame

    def _owners(self, split: Any) -> IntArray:
        """Return the partition of each row, -1 for none, shape (n,)."""
        from flwr_datasets import partitioner as kinds  # noqa: PLC0415

        values = dict(self.partitioner or {})
        kind = str(values.pop("kind", ""))
        known = [name for name in dir(kinds) if name.endswith("Partitioner")]
        if kind not in known:
            hint = known_names(kind, known)
            raise ConfigError(f"dataset.partitioner.kind={kind} is not allowed; {hint}")
        owners = np.full(len(split), -1)
        remedy = "give it other arguments"
        with intact(f"dataset.partitioner={self.partitioner}", remedy, "used"):
            partitioner = getattr(kinds, kind)(**values)
            partitioner.dataset = split.add_column(ROW, range(len(split)))
            for number in range(partitioner.num_partitions):
                rows = partitioner.load_partition(number).with_format("numpy")[ROW]
                owners[np.asarray(rows)] = number
        return owners

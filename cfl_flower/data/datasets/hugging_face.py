"""Datasets of Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from cfl_flower.data.datasets.columns import column_names
from cfl_flower.data.datasets.frames import Frames, TableDataset
from cfl_flower.data.reading.files import may_fetch
from cfl_flower.data.reading.pictures import Crop
from cfl_flower.data.reading.pool import cache_dir
from cfl_flower.errors import intact
from cfl_flower.settings import require, require_package, settings


@settings("dataset")
class HuggingFace(TableDataset):
    """A dataset of the Hugging Face hub, or a folder of one.

    Its columns are named as those of other tables are, and one may hold images.
    """

    path: str = ""
    """Name on the hub, such as `uoft-cs/cifar10`, or a folder: absolute, or below
    data_dir."""
    subset: str | None = None
    """Configuration of the dataset, where it has several."""
    train: str = "train"
    """The split to train on."""
    test: str | None = "test"
    """The split to test on; null, or if there is no test, holds `test_fraction` out."""
    name: ClassVar[str] = "the Hugging Face dataset"

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "a name on the hub, or a folder"
        require(bool(self.path), "dataset.path", repr(self.path), allowed)
        require_package("datasets", "dataset", "hf")

    def files(self) -> tuple[str, ...]:
        """Return what is in the folder, if it is one."""
        return (f"{self.path}/**/*",)

    def absent(self, data_dir: str) -> list[str]:
        """Return nothing: what is no folder may be on the hub."""
        return []

    def require_below(self, data_dir: str) -> None:
        """Require a folder below a device's own; the hub's datasets are no device's."""
        super().require_below(data_dir)
        there = Path(data_dir, self.path).is_dir()
        allowed = f"a folder with files below data-dir={data_dir}"
        require(there, "dataset.path", self.path, allowed)

    def frames(self, data_dir: str) -> Frames:
        """Return the rows of the splits; images are not decoded yet."""
        splits = self._splits(data_dir)
        allowed = f"one of {', '.join(splits)}"
        require(self.train in splits, "dataset.train", self.train, allowed)
        known = self.test in (None, "test", *splits)
        require(known, "dataset.test", self.test, f"null, or {allowed}")
        found = [("train", f"split {self.train}", self._frame(splits[self.train]))]
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
                # The library keeps what it makes of a folder's files beside what we
                # make of them.
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
        # pandas' numbers of rows are no inputs.
        rows = split.with_format("arrow")[:].to_pandas(integer_object_nulls=True)
        frame: pd.DataFrame = rows.filter(regex="^(?!__index_level_)")
        for name, kind in split.features.items():
            if isinstance(kind, datasets.ClassLabel):
                # An unknown one is -1.
                frame[name] = frame[name].map(dict(enumerate(kind.names))).fillna("")
        frame.columns = pd.Index(column_names(frame.columns))
        return frame

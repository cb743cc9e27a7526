"""The same cells in each kind of file, as a label, an owner, an input or a time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cfl_flower.data.datasets.frames import TableDataset
from cfl_flower.data.datasets.tables import Csv, Parquet
from cfl_flower.errors import ConfigError

ROWS = 24


def table(**columns: list[Any]) -> pd.DataFrame:
    """Return a table with a number, a label, an owner and what is given in addition."""
    usual = {
        "a": range(ROWS),
        # Half of the rows, every other one, have both, too.
        "label": ["x", "x", "y", "y"] * (ROWS // 4),
        "who": ["u", "u", "v"] * (ROWS // 3),
    }
    return pd.DataFrame({**usual, **columns})


def among(values: list[Any], rest: Any = "z") -> list[Any]:
    """Return a column of the values, each twice, and then of something else."""
    return [*values, *values, *[rest] * (ROWS - 2 * len(values))]


def as_csv(folder: Path, frame: pd.DataFrame, **own: Any) -> TableDataset:
    frame.to_csv(folder / "data.csv", index=False)
    return Csv(**own)


def as_files(folder: Path, frame: pd.DataFrame, **own: Any) -> TableDataset:
    for number in range(2):
        frame[number::2].to_csv(folder / f"part{number}.csv", index=False)
    return Csv(file="part*.csv", **own)


def as_test_file(folder: Path, frame: pd.DataFrame, **own: Any) -> TableDataset:
    frame[0::2].to_csv(folder / "train.csv", index=False)
    frame[1::2].to_csv(folder / "test.csv", index=False)
    return Csv(file="train.csv", test_file="test.csv", **own)


def as_parquet(folder: Path, frame: pd.DataFrame, **own: Any) -> TableDataset:
    pytest.importorskip("pyarrow", reason="needs pip install 'cfl-flower[data]'")
    frame.to_parquet(folder / "data.parquet")
    return Parquet(**own)


def as_hugging_face(folder: Path, frame: pd.DataFrame, **own: Any) -> TableDataset:
    reason = "needs pip install 'cfl-flower[data]'"
    datasets: Any = pytest.importorskip("datasets", reason=reason)
    from cfl_flower.data.datasets.hugging_face import HuggingFace

    datasets.Dataset.from_pandas(frame).save_to_disk(folder / "hub")
    return HuggingFace(path="hub", **own)


Reader = Callable[..., TableDataset]

READERS: list[Reader] = [*(as_csv, as_files, as_test_file, as_parquet, as_hugging_face)]

every_reader = pytest.mark.parametrize("reader", READERS, ids=lambda it: it.__name__)

CSVS = pytest.mark.parametrize("reader", READERS[:3], ids=lambda it: it.__name__)


def loaded(dataset: Any, folder: Path) -> Any:
    """Return the dataset as its files tell it, and its two pools."""
    known = dataset.complete(str(folder))
    return known, *known.load(str(folder))


def refusal(dataset: Any, folder: Path) -> str:
    """Return the one line that refuses a dataset."""
    with pytest.raises(ConfigError) as error:
        loaded(dataset, folder)
    assert "\n" not in str(error.value)
    return str(error.value)

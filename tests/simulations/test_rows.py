"""The rows of a file become what a network was trained on."""

import numpy as np
import pandas as pd
import pytest

from cfl_flower.data.datasets.columns import encode
from cfl_flower.errors import ConfigError
from simulations.rows import read_rows, to_inputs


def test_a_column_is_read_once_for_all_of_its_categories():
    read = []

    class Cell(str):
        def __str__(self) -> str:
            read.append(self)
            return super().__str__()

    names = [f"city {number}" for number in range(20)]
    frame = pd.DataFrame({"city": [Cell(name) for name in names]}, dtype=object)
    inputs = [{"column": "city", "category": name} for name in reversed(names)]
    x, notes = to_inputs({"inputs": inputs, "reading": {}}, frame)
    assert np.array_equal(x, np.eye(20)[::-1])
    assert not notes
    assert read == names


@pytest.mark.parametrize("text", ["TRUE", "True", "true", "None"])
def test_a_category_like_a_truth_or_like_nothing_is_the_files_text(text, tmp_path):
    """A reader that saw no other text in the column would make numbers of it."""
    (tmp_path / "new.csv").write_text(f"old,label\n{text},no\n{text},no\n")
    entries = [{"column": "old", "category": each} for each in (text, "unsure")]
    reading: dict[str, list[str]] = {"na_values": []}
    card = {"inputs": entries, "reading": reading, "shape": [2], "label": "label"}
    found, notes = to_inputs(card, read_rows(card, tmp_path / "new.csv"))
    assert found.tolist() == [[1, 0], [1, 0]]
    assert notes == []


@pytest.mark.parametrize("cells", [["TRUE", "False", ""], ["false"], ["?", "true"]])
def test_an_input_of_numbers_takes_true_false_and_what_lacks(cells, tmp_path):
    frame = pd.DataFrame({"old": cells, "label": "no"})
    frame.to_csv(tmp_path / "new.csv", index=False)
    entry = {"column": "old", "missing": 0.25}
    card = {"inputs": [entry], "reading": {}, "shape": [1], "label": "label"}
    found, _ = to_inputs(card, read_rows(card, tmp_path / "new.csv"))
    expected = {"true": 1, "false": 0}
    assert [value for (value,) in found] == [
        expected.get(cell.lower(), 0.25) for cell in cells
    ]


@pytest.mark.parametrize(
    ("signs", "expected"), [(["-999"], [5, 3]), ([], [-999, 3]), (None, [-999, 3])]
)
def test_a_number_that_stands_for_nothing_is_the_cards(signs, expected, tmp_path):
    pd.DataFrame({"age": [-999, 3]}).to_parquet(tmp_path / "new.parquet")
    inputs = [{"column": "age", "missing": 5.0}]
    told = {"reading": {"na_values": signs}, "shape": [1], "label": "label"}
    card = {"inputs": inputs, **told}
    found, _ = to_inputs(card, read_rows(card, tmp_path / "new.parquet"))
    assert found[:, 0].tolist() == expected


def test_a_duration_is_no_number_and_a_column_that_lacks_is_told(tmp_path):
    frame = pd.DataFrame({"wait": pd.to_timedelta([1, 2], "s"), "age": [None, np.nan]})
    frame.index.name = "new.parquet"
    entries = [{"column": "wait", "missing": 0.0}, {"column": "age", "missing": 5.0}]
    with pytest.raises(ConfigError, match="row 1 has wait=0 days 00:00:01, which"):
        to_inputs({"inputs": entries, "reading": {}}, frame)
    found, notes = to_inputs({"inputs": entries[1:], "reading": {}}, frame)
    assert found.tolist() == [[5.0], [5.0]]
    assert notes == ["no row has a value of age; the mean of the training fills it"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "us, Europe/Berlin"])
def test_dates_are_seconds_whatever_unit_and_zone_a_file_has_them_in(unit, tmp_path):
    """A library writes microseconds where another, or an older one, wrote others."""
    dates = pd.Series(pd.to_datetime(["2024-01-01", None, "1900-01-01"]))
    resolution, _, zone = unit.partition(", ")
    column = dates.astype(f"datetime64[{resolution}]")
    if zone:
        column = column.dt.tz_localize("UTC").dt.tz_convert(zone)
    frame = pd.DataFrame({"born": column})
    frame.to_parquet(tmp_path / "new.parquet")
    entry = {"column": "born", "missing": 0.0}
    card = {"inputs": [entry], "reading": {}, "shape": [1], "label": "no"}
    expected = [1704067200.0, np.nan, -2208988800.0]
    found, _ = to_inputs(card, read_rows(card, tmp_path / "new.parquet"))
    assert np.array_equal(found[:, 0], np.nan_to_num(expected).astype(np.float32))
    # As the training reads it.
    table = pd.concat([frame], keys=[("train", "old.parquet")])
    trained, _ = encode(table, "old.parquet")
    assert np.array_equal(trained[:, 0], expected, equal_nan=True)

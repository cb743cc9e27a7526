"""What people bring as data is read as they mean it, or a line says why not.

The same cells are brought in each kind of file and in each role: as label, owner,
category, number or time.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.tables import Csv, Parquet, TableDataset
from cfl_flower.data.reading.names import numbered_names
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


SAME = [
    *(["1", "1.0"], ["01", "1"], ["+1", "1"], ["1e3", "1000"], ["-0", "0.0"]),
    ["10", "10.", "1E1", "0010"],
]
"""Spellings of one whole number."""

ALIKE = [
    *(["North", "north"], ["north", "north "], ["a b", "a  b"], ["a b", "a\u00a0b"]),
    *(["True", "1"], ["true", "True"], ["0.5", ".50"], ["1.5", "15e-1"]),
    *(["ﬁn", "fin"], ["m²", "m2"], ["ab", "a\u200bb"], ["１ｘ", "1x"]),
]
"""Spellings that a person hardly tells from each other."""


@pytest.mark.parametrize("spellings", SAME, ids=str)
@CSVS
def test_whole_numbers_are_one_however_they_are_written(reader, spellings, tmp_path):
    frame = table(label=among(spellings, "7"), who=among(spellings, "8"))
    known, *pools = loaded(reader(tmp_path, frame, owner="who"), tmp_path)
    assert known.names[-1:] != ("z",)
    assert known.classes == 2
    owners = {owner for pool in pools for owner in pool.owners}
    assert owners == {0, 1}


@given(st.lists(st.integers(-(10**30), 10**30), min_size=2, unique=True))
@settings(max_examples=50)
def test_whole_numbers_have_the_order_of_their_size(numbers):
    forms = [str, lambda number: f"{number}.0", lambda number: f"{number:+040d}"]
    texts = [form(number) for number in numbers for form in forms]
    names, (places,) = numbered_names([np.array(texts)], "they")
    assert names.tolist() == [str(number) for number in sorted(numbers)]
    assert places.tolist() == [
        sorted(numbers).index(number) for number in numbers for _ in forms
    ]


@pytest.mark.parametrize("spellings", ALIKE, ids=str)
@pytest.mark.parametrize("role", ["label", "who", "b"])
@every_reader
def test_names_that_look_alike_are_refused_with_both(reader, role, spellings, tmp_path):
    frame = table(**{"b": ["q", "r"] * (ROWS // 2), role: among(spellings)})
    dataset = reader(tmp_path, frame, owner="who", features=("a", "b"))
    line = refusal(dataset, tmp_path)
    # Among inputs, a number beside texts is told as such.
    assert all(repr(each) in line for each in spellings) or "finite number" in line


def test_letters_and_accents_are_names_as_they_are_meant(tmp_path):
    frame = table(label=among(["a", "A"]), b=among(["é", "e\u0301"]))
    known, *_ = loaded(as_csv(tmp_path, frame), tmp_path)
    assert known.names == ("A", "a", "z")
    # The number, two owners, and é as one of two.
    assert known.shape == (5,)


@pytest.mark.parametrize("sign", ["", "?", "nan", None])
@pytest.mark.parametrize("role", ["label", "who", "b", "a"])
@every_reader
def test_what_stands_for_no_value_is_none(reader, role, sign, tmp_path):
    if role == "a" and sign is not None and reader not in READERS[:3]:
        pytest.skip("a column of numbers has no texts")
    usual = table(b=["q", "r"] * (ROWS // 2))
    cells = usual[role].astype(object).tolist()
    cells[5] = sign
    cells[8] = sign and f" {sign}"
    frame = usual.assign(**{role: cells})
    own: dict[str, Any] = {"owner": "who", "features": ("a", "b")}
    line = refusal(reader(tmp_path, frame, **own), tmp_path)
    assert f"{role} in 2 of {ROWS} rows" in line
    assert "dataset.missing=drop" in line
    dropped = reader(tmp_path, frame, **own, missing="drop")
    known, train, test = loaded(dropped, tmp_path)
    assert (len(train.labels) + len(test.labels), known.classes) == (ROWS - 2, 2)
    (note,) = known.notes(str(tmp_path))
    assert note.endswith("; rows left out: 2")
    mean = reader(tmp_path, frame, **own, missing="mean", standardise=False)
    if role != "a":
        assert "missing=drop" in refusal(mean, tmp_path)
        return
    _, train, test = loaded(mean, tmp_path)
    assert len(train.labels) + len(test.labels) == ROWS
    values = train.x[:, 0].tolist()
    others = [value for value in values if value == int(value)]
    filled = {*values, *test.x[:, 0].tolist()} - {*map(float, range(ROWS))}
    assert all(value == pytest.approx(np.mean(others), rel=0.1) for value in filled)


@pytest.mark.parametrize("missing", ["refuse", "drop", "mean"])
def test_a_column_without_any_value_is_told(missing, tmp_path):
    frame = table(b=["NA"] * ROWS)
    own = {"missing": missing, "standardise": "pooled"}
    dataset = as_csv(tmp_path, frame, features=("a", "b"), **own)
    assert "no mean" in refusal(dataset, tmp_path) or missing != "mean"


def test_a_name_may_be_what_stands_for_no_value_elsewhere(tmp_path):
    frame = table(label=["None", "some"] * (ROWS // 2))
    known, *_ = loaded(as_csv(tmp_path, frame, na_values=()), tmp_path)
    assert known.names == ("None", "some")
    line = refusal(as_csv(tmp_path, frame, na_values=("0",)), tmp_path)
    assert "a in 1 of" in line


@pytest.mark.parametrize(
    "cells",
    [
        *({"y": [0, 1, np.nan]}, {"owner": [0, 1, np.nan]}),
        *({"x": [[1.0], [2], [np.nan]]}, {"x": [[1.0], [2], [np.inf]]}),
        {"time": np.array(["2024"] * 2 + ["NaT"], "M8[D]")},
        *({"y": ["cat", "dog", each]} for each in ("?", "", " NaN ", "null")),
        *({"y": np.array([b"cat", b"dog", b"NA"])}, {"owner": ["u", "v", "None"]}),
    ],
)
def test_arrays_lack_no_value(cells, tmp_path):
    arrays = {"x": [[1.0], [2], [3]], "y": [0, 1, 0], **cells}
    arrays = {name: np.concatenate([array] * 4) for name, array in arrays.items()}
    np.savez(tmp_path / "data.npz", **arrays)
    assert re.search("row 3 has .*no value; leave it out", refusal(Npz(), tmp_path))


@pytest.mark.parametrize(
    "form",
    [
        *("{},5", "0,{}", "1,{}34", "1.{}34,5", "1 {}34", "1'{}34", "{}%", "{} %"),
        *("{} kg", "{}kg", "{},5 km/h", "$ {}", "€{}", "({})", "-{},5", "−{}"),
        *("<{}", "{} °C", "1,{}34,567.8", "{}e3 m²"),
    ],
)
@every_reader
def test_numbers_that_only_people_read_are_told(reader, form, tmp_path):
    frame = table(b=[form.format(2 + row % 5) for row in range(ROWS)])
    line = refusal(reader(tmp_path, frame, features=("a", "b")), tmp_path)
    assert "column b has numbers such as" in line
    csv = reader in READERS[:3]
    assert ("dataset.decimal=comma" in line) == (csv and "," in form)


@pytest.mark.parametrize(
    "texts", [["1st", "2nd"], ["7-9", "9-11"], ["3.1.2", "3.1.3"], ["a1", "a2"]]
)
def test_other_texts_with_digits_are_categories(texts, tmp_path):
    frame = table(b=texts * (ROWS // 2))
    known, *_ = loaded(as_csv(tmp_path, frame, features=("b",)), tmp_path)
    assert known.shape == (2,)


def test_beside_decimal_commas_the_text_is_what_is_wrong(tmp_path):
    (tmp_path / "data.csv").write_text("a;label\n1,5;x\n2;y\nabc;x\n2,5;y\n")
    dataset = Csv(separator="semicolon", decimal="comma")
    assert "row 3 has a=abc" in refusal(dataset, tmp_path)
    for number in ("1.983", "12.345.678", "1.500,25"):
        text = f"a;b;label\n1,5;{number};x\n2;7;y\n2,5;8;x\n"
        (tmp_path / "data.csv").write_text(text)
        assert f"{number}, which has a mark between thousands" in refusal(
            dataset, tmp_path
        )
    (tmp_path / "data.csv").write_text("a;label\n1,5;x\nNA;y\n2,5;x\n2,5;y\n")
    dataset = Csv(separator="semicolon", decimal="comma", missing="mean")
    assert loaded(dataset, tmp_path)[0].shape == (1,)


@pytest.mark.parametrize(
    ("written", "form", "meant"),
    [
        ("31.01.2024 10:30", "%d.%m.%Y %H:%M", "2024-01-31T10:30"),
        ("01/31/2024", "%m/%d/%Y", "2024-01-31"),
        ("31 Jan 24", "%d %b %y", "2024-01-31"),
        ("20240131", "%Y%m%d", "2024-01-31"),
        ("01022024", "%d%m%Y", "2024-02-01"),
        ("202401", "%Y%m", "2024-01-01"),
        ("20240131103000", "%Y%m%d%H%M%S", "2024-01-31T10:30"),
    ],
)
@every_reader
def test_dates_are_read_in_the_format_that_is_named(
    reader, written, form, meant, tmp_path
):
    frame = table(when=[written] * ROWS)
    line = refusal(reader(tmp_path, frame, features=("a",), time="when"), tmp_path)
    assert "row 1 has when=" in line
    assert "dataset.time_format" in line
    own: dict[str, Any] = {"features": ("a",), "time": "when", "time_format": form}
    _, train, test = loaded(reader(tmp_path, frame, **own), tmp_path)
    wanted = np.datetime64(meant, "s").astype(np.int64)
    assert {*train.times, *test.times} == {wanted}


@pytest.mark.parametrize(
    ("cells", "form", "words"),
    [
        (["2024-01-31", "2024-02-30"], None, "row 2 has when=2024-02-30, .* ISO8601"),
        (["20240131", "20240230"], "%Y%m%d", "row 2 has when=20240230, .* %Y%m%d"),
        (["2024-01-31", "7"], None, "row 1 has when=2024-01-31, .* no integer"),
        (["7", "7.5"], None, "row 2 has when=7.5, .* no integer"),
        (["7", "9" * 20], None, "row 2 has when=9+, .* no integer"),
        (["2024-01-31T10:00Z", "2024-01-31T10:00"], None, "row 2 .* no time zone"),
        (["31.01.2024", "1.2.2024"], "DD.MM.YYYY", "no date in the format DD"),
        (["31.01.2024", "1.2.2024"], "%Q", "time_format=%Q cannot be read"),
    ],
)
def test_times_of_another_kind_are_told_with_their_row(cells, form, words, tmp_path):
    frame = table(when=cells * (ROWS // 2))
    dataset = as_csv(tmp_path, frame, features=("a",), time="when", time_format=form)
    with pytest.raises(ConfigError, match=words):
        loaded(dataset, tmp_path)


@pytest.mark.parametrize(
    ("cells", "form", "times"),
    [
        (["20240131", "20240230"], "integer", {20240131, 20240230}),
        (["1704067200000000001", "7"], None, {1704067200000000001, 7}),
        (["2016", "2017"], None, {2016, 2017}),
        (["100", "20240131"], None, {100, 20240131}),
        (["2024-01-31T10:00Z", "2024-01-31T12:00+02:00"], None, {1706695200}),
    ],
)
def test_integers_stay_integers(cells, form, times, tmp_path):
    frame = table(when=cells * (ROWS // 2))
    dataset = as_csv(tmp_path, frame, features=("a",), time="when", time_format=form)
    _, train, test = loaded(dataset, tmp_path)
    assert {*train.times, *test.times} == times


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("extra", [",", ",9", ",9,9"])
@pytest.mark.parametrize("order", ["label,a,b", "a,label,b", "id,a,label"])
def test_rows_with_more_values_than_names_are_told(order, extra, place, tmp_path):
    cells = {"label": "xy", "a": "01", "b": "23", "id": "45"}
    rows = [
        ",".join(cells[name][row % 2] for name in order.split(",")) for row in range(9)
    ]
    longer = [
        row + extra if place in (0, each) else row for each, row in enumerate(rows)
    ]
    (tmp_path / "data.csv").write_text("\n".join([order, *longer]))
    line = refusal(Csv(), tmp_path)
    assert "data.csv cannot be read" in line
    assert re.search("more values|Expected . fields|Length of header", line)


@pytest.mark.parametrize("name", ["data[1]", "a*b", "what?", "[ab]", "**"])
def test_a_file_that_exists_is_no_pattern(name, tmp_path):
    plain = name.replace("[1]", "1").replace("*", "x").replace("?", "y")
    plain = plain.replace("[ab]", "a")
    for stem, classes in ((name, 3), (plain, 2)):
        label = [f"c{row % classes}" for row in range(ROWS)]
        table(label=label).to_csv(tmp_path / f"{stem}.csv", index=False)
        y = np.arange(ROWS) % classes
        np.savez(tmp_path / f"{stem}.npz", x=np.ones((ROWS, 1)), y=y)
    for dataset in (Csv(file=f"{name}.csv"), Npz(file=f"{name}.npz")):
        assert loaded(dataset, tmp_path)[0].classes == 3
    np.savez(tmp_path / f"{name}.npz", x=np.ones((ROWS, 1)), y=np.arange(ROWS) % 4)
    assert loaded(Npz(file=f"{name}.npz"), tmp_path)[0].classes == 4


@pytest.mark.parametrize("bad", ["?", "z"])
@pytest.mark.parametrize(
    ("reader", "row", "where"),
    [
        (as_csv, 4, "data.csv: row 5"),
        (as_files, 9, "part1.csv: row 5"),
        (as_test_file, 9, "test.csv: row 5"),
        (as_test_file, 8, "train.csv: row 5"),
        (as_parquet, 4, "data.parquet: row 5"),
        (as_hugging_face, 4, "split train: row 5"),
    ],
)
def test_an_error_names_the_file_and_the_row(reader, row, where, bad, tmp_path):
    cells = [str(number) for number in range(ROWS)]
    cells[row] = bad
    dataset = reader(tmp_path, table(a=cells), features=("a",))
    assert where in refusal(dataset, tmp_path)


@pytest.mark.parametrize("reader", [as_csv, as_parquet, as_hugging_face])
def test_names_of_columns_are_texts_without_blanks(reader, tmp_path):
    names = {"a": "0", "label": " 2 ", "who": "1 "}
    dataset = reader(tmp_path, table().rename(columns=names), label="2", owner="1")
    assert loaded(dataset, tmp_path)[0].shape == (1,)
    if reader is as_parquet:
        numbers = table().set_axis([0, 1, 2], axis=1)
        numbers.to_parquet(tmp_path / "data.parquet")
        assert loaded(Parquet(label="1", owner="2"), tmp_path)[0].shape == (1,)


def test_times_of_arrays_may_be_dates(tmp_path):
    days = np.array(["1970-01-01", "1970-01-02"] * 4, "datetime64[D]")
    np.savez(tmp_path / "data.npz", x=np.ones((8, 1)), y=[0, 0, 1, 1] * 2, time=days)
    _, train, test = loaded(Npz(), tmp_path)
    assert {*train.times, *test.times} == {0, 86400}
    words = ["now"] * 8
    np.savez(tmp_path / "data.npz", x=np.ones((8, 1)), y=[0, 0, 1, 1] * 2, time=words)
    assert "times are <U3, neither integers nor datetime64" in refusal(Npz(), tmp_path)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (
            ["a,b,label", "a,label"],
            "part0.csv and part1.csv do not both have the columns b",
        ),
        (["a,c,label", "a,b,label"], "part1.csv do not both have the columns b, c"),
        (["a,b,label", "a,b,Label"], "label=label is no column of part1.csv; did you"),
        (["a,b,label", "a,,label"], "part1.csv has no name for column 2"),
        ([",b,label", "a,b,label"], "part0.csv has no name for column 1"),
        (
            ["a,b,label"] * 2 + ["a,B,label"],
            "part0.csv and part2.csv do not both have the columns B, b",
        ),
    ],
)
def test_the_file_whose_columns_differ_is_named(headers, words, tmp_path):
    for number, header in enumerate(headers):
        numbers = "1," * header.count(",")
        rows = [f"{numbers}x", f"{numbers}y"] * 4
        (tmp_path / f"part{number}.csv").write_text("\n".join([header, *rows]))
    assert words in refusal(Csv(file="part*.csv"), tmp_path)


def test_a_missing_image_is_told_with_the_row_that_lists_it(tmp_path):
    names = [f"{row}.png" for row in range(ROWS)]
    frame = pd.DataFrame({"image": names, "label": ["x", "y"] * (ROWS // 2)})
    for name in names[:4]:
        Image.new("L", (4, 4)).save(tmp_path / name)
    for reader, where in ((as_csv, "data.csv: row 5"), (as_files, "part0.csv: row 3")):
        line = refusal(reader(tmp_path, frame, image="image"), tmp_path)
        assert f"{where} has image=" in line
        assert "4.png, which is no file" in line


@pytest.mark.parametrize("missing", ["refuse", "drop", "mean"])
def test_no_remedy_is_what_is_set_already(missing, tmp_path):
    lacking = ROWS if missing == "drop" else 2
    frame = table(label=["NA"] * lacking + ["x", "y"] * ((ROWS - lacking) // 2))
    line = refusal(as_csv(tmp_path, frame, missing=missing), tmp_path)
    assert ("missing=drop" in line) == (missing != "drop")
    assert ("or mean" in line) == (missing == "refuse")
    for decimal in ("point", "comma"):
        cells = [f"{row},5 kg" for row in range(ROWS)]
        dataset = as_csv(tmp_path, table(b=cells), decimal=decimal, features=("b",))
        said = "decimal=comma" in refusal(dataset, tmp_path)
        assert said == (decimal == "point")

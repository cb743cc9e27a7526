"""What is wrong with files that people bring is told with the file and the row."""

import re
from itertools import product

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from cfl_flower.data.datasets.folders import ImageFolder
from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.tables import Csv, Parquet
from cfl_flower.data.reading.files import find
from tests.cfl_flower.data.datasets.brought import (
    ROWS,
    as_csv,
    as_files,
    as_hugging_face,
    as_parquet,
    as_test_file,
    loaded,
    refusal,
    table,
)


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


def test_files_are_in_the_order_of_the_numbers_in_their_names(tmp_path):
    names = ["7", "a", "a1", "a2", "a10", "b1-2", "b1-10", "b2-1"]
    for name in reversed(names):
        (tmp_path / f"{name}.csv").touch()
    assert [path.stem for path in find(str(tmp_path), "*.csv")] == names


def test_texts_as_bytes_are_names_or_one_line(tmp_path):
    cities = ["Köln".encode(), b"Ulm"] * (ROWS // 2)
    pd.DataFrame({"a": range(ROWS), "label": cities}).to_parquet(
        tmp_path / "data.parquet"
    )
    assert loaded(Parquet(), tmp_path)[0].names == ("Köln", "Ulm")
    pd.DataFrame({"a": range(ROWS), "label": [b"\xff", b"b"] * (ROWS // 2)}).to_parquet(
        tmp_path / "data.parquet"
    )
    assert "write its texts in UTF-8" in refusal(Parquet(), tmp_path)


def test_what_changes_deep_in_a_folder_is_read_anew(tmp_path):
    images = ImageFolder(folder="own", size=4, channels=1)
    table = Parquet(file="years")
    listed = Csv(image="image", size=4, channels=1, standardise=False)
    rows = {"image": [f"own/train/{name}/0.png" for name in ("cat", "dog")] * 6}
    frame = pd.DataFrame({**rows, "label": ["x", "y"] * 6})
    frame.to_csv(tmp_path / "data.csv", index=False)
    for count, grey in ((8, 10), (16, 200)):
        for part, name in product(("train", "test"), ("cat", "dog")):
            place = tmp_path / "own" / part / name
            place.mkdir(parents=True, exist_ok=True)
            Image.new("L", (4, 4), grey).save(place / "0.png")
        years = {"a": range(count), "label": [0, 1] * (count // 2), "year": count}
        pd.DataFrame(years).to_parquet(tmp_path / "years", partition_cols=["year"])
        for dataset in (images, listed):
            assert dataset.load(str(tmp_path))[0].x.max() == grey
        pools = table.load(str(tmp_path))
        assert sum(len(pool.labels) for pool in pools) == (8 if count == 8 else 24)


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


@pytest.mark.parametrize("names", [["label"], ["who"], ["a", "who"], ["who", "label"]])
def test_columns_that_pandas_took_for_names_of_rows_are_columns(names, tmp_path):
    plain = as_parquet(tmp_path, table(), owner="who")
    (_, *pools) = loaded(plain, tmp_path)
    indexed = as_parquet(tmp_path, table().set_index(names), owner="who")
    for one, other in zip(loaded(indexed, tmp_path)[1:], pools, strict=True):
        assert one.x.equal(other.x)
        assert one.labels.tolist() == other.labels.tolist()
        assert one.owners.tolist() == other.owners.tolist()


@pytest.mark.parametrize("reader", [as_parquet, as_hugging_face])
def test_numbers_of_rows_are_no_column(reader, tmp_path):
    dataset = reader(tmp_path, table()[::-1], owner="who")
    assert loaded(dataset, tmp_path)[0].shape == (1,)


@pytest.mark.parametrize(("name", "inputs"), [("a", 1), ("label", 1), (0, 2), ("", 1)])
def test_names_of_rows_may_be_a_columns_or_numbers(name, inputs, tmp_path):
    frame = table().set_index(pd.Index(range(ROWS), name=name))
    dataset = as_parquet(tmp_path, frame, owner="who")
    assert loaded(dataset, tmp_path)[0].shape == (inputs,)


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

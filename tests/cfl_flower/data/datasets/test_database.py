"""Rows of a database, by a query that stands beside the data."""

import json
import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfl_flower.data.datasets.database import Sql
from cfl_flower.data.datasets.tables import Csv, Parquet
from cfl_flower.errors import ConfigError

QUERY = "select age, kind, label from pets order by id"


def write(folder: Path, address: str = "a b#1.db", query: str = QUERY) -> str:
    with sqlite3.connect(folder / "a b#1.db") as database:
        database.execute("create table pets (id, age, kind, label)")
        rows = [(n, n / 2, "cat" if n % 3 else None, "ab"[n % 2]) for n in range(12)]
        database.executemany("insert into pets values (?, ?, ?, ?)", rows)
    database.close()
    source = {"address": address, "query": query}
    (folder / "sql.json").write_text(json.dumps(source))
    return str(folder)


@pytest.mark.parametrize("sqlalchemy", [False, True])
def test_rows_of_a_query_are_samples_and_later_ones_are_found(sqlalchemy, tmp_path):
    address = "a b#1.db"
    if sqlalchemy:
        pytest.importorskip("sqlalchemy")
        address = f"sqlite:///{tmp_path}/a b#1.db"
    folder = write(tmp_path, address)
    dataset = Sql(missing="drop", standardise=False)
    known = dataset.complete(folder)
    assert (known.shape, known.names) == ((2,), ("a", "b"))
    train, test = known.load(folder)
    assert len(train.labels) + len(test.labels) == 8
    before = dataset.version(folder)
    with sqlite3.connect(tmp_path / "a b#1.db") as database:
        database.execute("insert into pets values (99, 1, 'ant', 'a')")
    database.close()
    assert dataset.version(folder) != before
    assert dataset.complete(folder).shape == (3,)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "sql.json cannot be read"),
        ("[]", "sql.json cannot be read"),
        ('{"query": "select 1"}', "it lacks 'address'"),
        ('{"address": "no.db", "query": "select 1"}', "unable to open database file"),
        ('{"address": "a b#1.db", "query": "drop table pets"}', "readonly|read-only"),
        ('{"address": "a b#1.db", "query": "select * from dogs"}', "no such table"),
        *(
            (json.dumps({"address": "a b#1.db", "query": query}), "gives no rows")
            for query in ("", " ", ";", "-- select", "begin", "pragma foreign_keys=1")
        ),
        ('{"address": "odd://x", "query": "select 1"}', "sqlalchemy|odd"),
        ('{"address": "a b#1.db", "query": "select 1, 1"}', "several columns"),
    ],
)
def test_what_cannot_be_read_is_one_line(content, line, tmp_path):
    folder = write(tmp_path)
    (tmp_path / "sql.json").write_text(content)
    with pytest.raises(ConfigError, match=line) as error:
        Sql().complete(folder)
    assert "\n" not in str(error.value)


def test_without_a_query_the_line_says_where_it_goes(tmp_path):
    with pytest.raises(ConfigError, match=r"it lacks sql.json; write \{\"address\""):
        Sql().check(str(tmp_path))


ID = 1234567890123456700
"""Beyond 2^53: as floats, this one and the next hundred are the same."""


def test_columns_of_texts_that_are_numbers_are_named_in_one_line(tmp_path):
    # As sqlite's .import makes of a csv.
    query = "select cast(id as text) as id, "
    query += ", ".join(f"cast(id % {n} as text) as c{n}" for n in range(2, 8))
    folder = write(tmp_path, query=f"{query}, label from pets")
    assert Sql().complete(folder).shape == (7,)
    (note,) = (each for each in Sql().notes(folder) if "codes" in each)
    assert "column id, c2, c3, c4, c5, …: texts that are numbers" in note


@pytest.mark.parametrize("kind", ["csv", "parquet", "sql"])
def test_ids_of_a_column_with_gaps_keep_their_digits(kind, tmp_path):
    ids = [ID + n % 8 if n else None for n in range(80)]
    rows = pd.DataFrame({"who": ids, "x": range(80), "label": [*"ab"] * 40}, dtype="O")
    rows = rows.astype({"who": "Int64", "x": int, "label": str})
    if kind == "sql":
        (tmp_path / "sql.json").write_text(
            '{"address": "a.db", "query": "select * from t"}'
        )
        with closing(sqlite3.connect(tmp_path / "a.db")) as database:
            rows.to_sql("t", database, index=False)
    else:
        write_file = rows.to_csv if kind == "csv" else rows.to_parquet
        write_file(tmp_path / f"data.{kind}", index=False)
    dataset = {"csv": Csv, "parquet": Parquet, "sql": Sql}[kind]
    train, _ = dataset(owner="who", missing="drop").load(str(tmp_path))
    assert len(np.unique(train.owners)) == 8
    # The first row was left out, and each has its place in the table.
    assert train.rows.min() == 1
    assert set(train.rows) <= set(range(1, 80))


def test_dates_of_several_zones_and_kinds_are_one_number(tmp_path):
    hours = pd.date_range("2024-01-01", periods=40, freq="h", tz="UTC")
    kinds = {
        "a": hours,
        "b": hours.tz_convert("Europe/Berlin"),
        "c": hours.tz_localize(None),
        "d": hours.date,
    }
    for name, times in kinds.items():
        frame = pd.DataFrame({"t": times, "label": [*"ab"] * 20})
        frame.to_parquet(tmp_path / f"{name}.parquet")
    for one, other in product(kinds, repeat=2):
        files = {"file": f"{one}.parquet", "test_file": f"{other}.parquet"}
        train, test = Parquet(**files, standardise="pooled").load(str(tmp_path))
        assert train.x.shape == test.x.shape == (40, 1)
        if "d" not in (one, other):
            assert np.array_equal(train.x, test.x)

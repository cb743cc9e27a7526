"""Rows of a database, by a query that stands beside the data."""

import json
import sqlite3
from pathlib import Path

import pytest

from cfl_flower.data.datasets.database import Sql
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

"""Rows of a database, by a query that its owner has written beside the data."""

from __future__ import annotations

import json
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from sqlite3 import connect
from typing import ClassVar, Literal

from cfl_flower.data.datasets.columns import column_names
from cfl_flower.data.datasets.frames import Frames, TableDataset
from cfl_flower.errors import intact
from cfl_flower.settings import require_package, settings

EXACT: Literal["numpy_nullable"] = "numpy_nullable"
"""How integers of a column with gaps keep their digits, as ids have."""


@settings("dataset")
class Sql(TableDataset):
    """The rows of a query, which their owner has written into `sql.json` in data_dir.

    `{"address": "records.db", "query": "select ..."}`, with a file of SQLite or an
    address of SQLAlchemy. No setting of a run names either, as others write these.
    """

    standardise: Literal["clients", "pooled", False] = "clients"
    name: ClassVar[str] = "the query of sql.json"
    patterns: ClassVar[tuple[str, ...]] = ("sql.json",)
    remedy: ClassVar[str] = 'write {"address": "records.db", "query": "select ..."}'

    def version(self, data_dir: str) -> str:
        """Return what changes when a row does."""
        [(_, _, frame)] = self.frames(data_dir)
        return blake2b(frame.to_csv().encode()).hexdigest()

    def frames(self, data_dir: str) -> Frames:
        """Return the rows."""
        import pandas as pd

        path = Path(data_dir, *self.patterns)
        with intact(path, self.remedy):
            source = json.loads(path.read_text(encoding="utf-8"))
            address = str(source["address"])
            query = str(source["query"])
            if "://" in address:
                require_package("sqlalchemy", "dataset", "sql")
                frame = pd.read_sql_query(query, address, dtype_backend=EXACT)
            else:
                file = Path(data_dir, address).absolute().as_uri()
                with closing(connect(f"{file}?mode=ro", uri=True)) as database:
                    try:
                        frame = pd.read_sql_query(query, database, dtype_backend=EXACT)
                    except TypeError as error:
                        # pandas asks for the columns that there are not.
                        raise ValueError(f"{query!r} gives no rows") from error
            frame.columns = pd.Index(column_names(frame.columns))
        return [("train", self.name, frame)]

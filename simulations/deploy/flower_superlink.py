"""Flower's SuperLink, as a process whose database keeps nothing that was deleted.

Flower 1.41 deletes a run's messages, but not the pages that held them: SQLite leaves
both the database's and its journal's as they were. It is run by its path, in whatever
folder, and needs nothing but Flower.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import threading
from contextlib import closing
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

SECONDS = 60.0
"""Between two times at which the journal is emptied."""


def overwrite_deleted(connection: Any, _: object) -> None:
    """Let SQLite overwrite what it deletes, whatever it was built to do."""
    connection.execute("PRAGMA secure_delete = ON")


def wipe(database: Path, rewrite: bool) -> None:
    """Empty the journal of a database, if there is one, and perhaps rewrite it all.

    Whoever uses the database is waited for, for five seconds.
    """
    if not database.is_file():
        return
    try:
        with closing(sqlite3.connect(database)) as connection:
            overwrite_deleted(connection, None)
            if rewrite:
                connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        print(f"{database} could not be wiped: {error}", file=sys.stderr, flush=True)


def keep_wiping(database: Path, end: threading.Event) -> None:
    """Empty the journal again and again."""
    while not end.wait(SECONDS):
        wipe(database, rewrite=False)


def main() -> None:
    """Turn into Flower's command, and look after its database meanwhile."""
    database = Path(sys.argv[sys.argv.index("--database") + 1])
    end = threading.Event()
    # For whatever was deleted before, or a killed process left.
    wipe(database, rewrite=True)
    event.listen(Engine, "connect", overwrite_deleted)
    threading.Thread(target=keep_wiping, args=(database, end), daemon=True).start()
    # Uvicorn ends what it serves, and then raises the signal again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    (command,) = entry_points(group="console_scripts", name="flower-superlink")
    try:
        command.load()()
    finally:
        end.set()
        wipe(database, rewrite=True)


if __name__ == "__main__":
    main()

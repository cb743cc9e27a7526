"""Flower's SuperLink, as a process whose database keeps nothing that was deleted.

Flower 1.41 deletes a run's messages, but not the pages that held them: SQLite leaves
both the database's and its journal's as they were. It also takes a certificate that was
renewed, and says how it is where `health` and `logs` read. It is run by its path, in
whatever folder.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import lru_cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import uvicorn.config
from sqlalchemy import event
from sqlalchemy.engine import Engine

# This checkout's, behind all others.
sys.path.append(str(Path(__file__).parents[2]))

from cfl_flower.runs.console import WATCHED
from simulations.deploy import health, logs
from simulations.deploy.addresses import write_address
from simulations.deploy.health import option

SECONDS = 60.0
"""Between two times at which the journal is emptied, and a new certificate taken."""

RUNS = 8
"""Runs whose numbers are told, the newest ones."""

GAUGES = ("round", "accuracy", "loss", "num_clusters", "participants", "epsilon")
"""Columns of the last round that are told as they are."""


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


def kept_contexts() -> list[ssl.SSLContext]:
    """Return a list that gets the TLS contexts with which the SuperLink will serve."""
    contexts: list[ssl.SSLContext] = []
    make = uvicorn.config.create_ssl_context

    def kept(*arguments: Any, **more: Any) -> ssl.SSLContext:
        contexts.append(make(*arguments, **more))
        return contexts[-1]

    uvicorn.config.create_ssl_context = kept
    return contexts


def renew(contexts: Iterable[ssl.SSLContext], certificate: str, key: str) -> None:
    """Let new connections get the certificate that is there now, if it is well."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:
        print(f"{certificate} was not taken: {error}", file=sys.stderr, flush=True)
        return
    for context in contexts:
        context.load_cert_chain(certificate, key)


def device_samples(database: Path) -> Iterator[health.Sample]:
    """Yield of each registered device whether the SuperLink hears it."""
    query = "SELECT name, node_id, online_until FROM node WHERE unregistered_at IS NULL"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        for name, number, until in connection.execute(query):
            # SQLite's numbers are signed, and Flower's are not.
            labels = {"device": name or "", "node": str(number % 2**64)}
            yield "device_online", labels, float((until or 0) > time.time())


@lru_cache(RUNS)
def run_samples(folder: Path, _: float) -> list[health.Sample]:
    """Return the numbers of a run, whose rounds are of a time of their file."""
    from cfl_flower.runs.lines import read_rounds, read_tests  # noqa: PLC0415

    rounds = read_rounds(folder)
    tests = read_tests(folder)
    last = rounds[-1] if rounds else {}
    lost = Counter((f["phase"], f["reason"]) for row in rounds for f in row["failures"])
    latest = {str(row["client"]): row["round"] for row in tests}
    sent = {way: sum(row[f"bytes_{way}"] for row in rounds) for way in ("up", "down")}
    return [
        *((key, {}, last[key]) for key in GAUGES if last.get(key) is not None),
        *(("bytes_total", {"direction": way}, count) for way, count in sent.items()),
        *(("client_last_round", {"client": c}, row) for c, row in latest.items()),
        *(
            ("failures_total", {"phase": phase, "reason": reason}, count)
            for (phase, reason), count in lost.items()
        ),
    ]


def samples(database: Path, watched: Path) -> Iterator[health.Sample]:
    """Yield the numbers of devices, and of the newest runs, each named by a file."""
    yield from device_samples(database)
    names = sorted(watched.glob("[!.]*"), key=lambda path: path.stat().st_mtime)
    for rounds in [Path(name.read_text(), "rounds.jsonl") for name in names[-RUNS:]]:
        if not rounds.exists():
            continue
        run = {"run": str(rounds.parent)}
        changed = rounds.stat().st_mtime
        yield "last_round_timestamp_seconds", run, changed
        for name, labels, value in run_samples(rounds.parent, changed):
            yield name, {**labels, **run}, value


def main() -> None:
    """Turn into Flower's command, and look after its database meanwhile."""
    logs.begin()
    print(" ".join(sys.orig_argv), flush=True)
    database = Path(option("--database"))
    watched = database.with_name("watched")
    watched.mkdir(exist_ok=True)
    # For the servers of runs.
    os.environ[WATCHED] = str(watched)
    end = threading.Event()
    # For whatever was deleted before, or a killed process left.
    wipe(database, rewrite=True)
    event.listen(Engine, "connect", overwrite_deleted)
    files = option("--ssl-certfile"), option("--ssl-keyfile")
    contexts = kept_contexts()

    def look_after() -> None:
        while not end.wait(SECONDS):
            wipe(database, rewrite=False)
            renew(contexts, *files)

    threading.Thread(target=look_after, daemon=True).start()
    if address := os.environ.get(health.HEALTH):
        own = write_address(option("--host"), int(option("--port")))
        numbers = partial(samples, database, watched)
        health.serve(address, partial(health.why_not, f"https://{own}/health"), numbers)
    # Uvicorn ends what it serves, and then raises the signal again.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    (flower,) = entry_points(group="console_scripts", name="flower-superlink")
    try:
        flower.load()()
    finally:
        end.set()
        wipe(database, rewrite=True)


if __name__ == "__main__":
    main()

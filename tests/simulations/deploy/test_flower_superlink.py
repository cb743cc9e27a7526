"""What was deleted from Flower's database is in none of its files."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from sqlalchemy import event
from sqlalchemy.engine import Engine
from sqlalchemy.exc import InvalidRequestError

from simulations.deploy import flower_superlink

UPLOAD = np.frombuffer(b"an upload without noise " * 9000, np.uint8)
MARK = b"an upload without noise an upload"


def leave_deleted(connection: Any, _: object) -> None:
    """Delete as SQLite does by itself where Python is not Debian's."""
    connection.execute("PRAGMA secure_delete = OFF")


@pytest.fixture(autouse=True)
def _plain_sqlite() -> Iterator[None]:
    event.listen(Engine, "connect", leave_deleted)
    yield
    for listener in (leave_deleted, flower_superlink.overwrite_deleted):
        with suppress(InvalidRequestError):
            event.remove(Engine, "connect", listener)


def carry_out_a_run(database: Path) -> object:
    """Store an upload as Flower does, and delete it as at the end of a run."""
    store = ObjectStoreFactory(str(database)).store()
    array = Array(UPLOAD)
    for each in (*array.children.values(), array):
        store.preregister(1, get_object_tree(each))
        store.put(each.object_id, each.deflate())
    store.delete_objects_in_run(1)
    assert holds(database), "Flower leaves it"
    return store


def holds(database: Path) -> bool:
    files = database.parent.glob(f"{database.name}*")
    return any(MARK in path.read_bytes() for path in files)


def test_a_database_that_is_rewritten_has_nothing_deleted(tmp_path):
    database = tmp_path / "state.db"
    flower_superlink.wipe(database, rewrite=True)
    assert not database.exists()
    running = carry_out_a_run(database)
    flower_superlink.wipe(database, rewrite=False)
    assert holds(database), "the pages are free, and as they were"
    flower_superlink.wipe(database, rewrite=True)
    assert not holds(database)
    del running


def test_what_a_running_superlink_deletes_is_overwritten(tmp_path):
    database = tmp_path / "state.db"
    event.listen(Engine, "connect", flower_superlink.overwrite_deleted)
    running = carry_out_a_run(database)
    flower_superlink.wipe(database, rewrite=False)
    assert not holds(database)
    del running


@pytest.mark.slow
@pytest.mark.devices
def test_a_superlink_wipes_at_its_start_and_when_it_is_stopped(deployment):
    database = deployment.root / "superlink" / "state.db"
    assert deployment.kill("flower_superlink")
    carry_out_a_run(database)
    process = deployment.start_superlink()
    assert not holds(database)
    process.terminate()
    assert process.wait(60) == 0, "stopped as a service manager does"
    journal = database.with_name("state.db-wal")
    assert not journal.exists() or not journal.read_bytes()

"""Messages between processes of one machine, whose arrays are in memory of both.

A message travels through a pipe, without its arrays. Those are in a file that exists in
memory alone and has no name: whoever has it open maps it, and it is gone with the last
one, however that ends.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import sys
import tempfile
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, BinaryIO, TypeAlias

from flwr.app import Array, Message

ALIGNMENT = 64
"""Bytes, of which the place of each array is a multiple, as numpy's own memory is."""

Place: TypeAlias = tuple[str, tuple[int, ...], str, int, int]
"""An array's dtype, shape and kind of bytes; where these begin in the file and end."""


def open_memory() -> BinaryIO:
    """Return a new file without a name: in memory, where the system has such files."""
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("cfl-flower"), "w+b")
    return tempfile.TemporaryFile()


class SharedArrays:
    """The arrays of some messages, each once, however many messages have it."""

    def __init__(self) -> None:
        self._file = open_memory()
        self._places: dict[int, tuple[Array, Place]] = {}

    def place(self, array: Array) -> Place:
        """Return where an array is, and write it if it is new."""
        known = self._places.get(id(array))
        if known is not None:
            return known[1]
        file = self._file
        start = -(-file.tell() // ALIGNMENT) * ALIGNMENT
        file.seek(start)
        file.write(array.data)
        place = (array.dtype, array.shape, array.stype, start, file.tell())
        # With the array, whose id is no other's as long as it is there.
        self._places[id(array)] = (array, place)
        return place

    def send(self, message: Message, connection: Connection) -> None:
        """Send a message. Raises `OSError` if the other process has ended."""
        written = io.BytesIO()
        _Writer(written, self).dump(message)
        self._file.flush()
        connection.send_bytes(written.getbuffer())
        # Only Windows asks for the process.
        send_handle(connection, self._file.fileno(), 0)

    def close(self) -> None:
        """Let go of the file; whoever has received it keeps it."""
        self._file.close()


def receive(connection: Connection) -> Message:
    """Return the next message, whose arrays are read-only views of shared memory.

    Raises `EOFError` or `OSError` if the other process has ended.
    """
    data = io.BytesIO(connection.recv_bytes())
    with os.fdopen(recv_handle(connection), "rb") as file:
        message: Message = _Reader(data, file).load()
    return message


class _Writer(pickle.Pickler):
    """Writes places instead of arrays."""

    def __init__(self, file: BinaryIO, arrays: SharedArrays) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._arrays = arrays

    def persistent_id(self, obj: Any) -> Place | None:
        """Return the place of an array, and None for all else, which is written."""
        return self._arrays.place(obj) if isinstance(obj, Array) else None


class _Reader(pickle.Unpickler):
    """Reads arrays from their places."""

    def __init__(self, data: BinaryIO, file: BinaryIO) -> None:
        super().__init__(data)
        self._file = file
        self._memory: memoryview | None = None

    def persistent_load(self, pid: Place) -> Array:
        """Return the array of a place."""
        if self._memory is None:
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            self._memory = memoryview(mapped)
        dtype, shape, stype, start, stop = pid
        array = Array(dtype, shape, stype, b"")
        # Flower takes bytes alone, which would be a copy.
        array.data = self._memory[start:stop]  # type: ignore[assignment]
        return array

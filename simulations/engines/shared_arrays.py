"""Messages between processes of one machine, whose arrays are in memory of both.

A message is in a file that exists in memory alone and has no name: whoever has it open
maps it, and it is gone with the last one, however that ends. Through a socket travels
the file, with the place of the message in it. So few bytes are sent and received at
once, and nobody waits for a process that stands still.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
import struct
import sys
import tempfile
from typing import Any, BinaryIO, TypeAlias

from flwr.app import Array, Message

ALIGNMENT = 64
"""Bytes, of which the place of each array is a multiple, as numpy's own memory is."""

WHERE = struct.Struct("=QQ")
"""Offsets at which a message begins and ends in its file."""

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

    def send(self, message: Message, connection: socket.socket) -> None:
        """Send a message. Raises `OSError` if the other process has ended."""
        written = io.BytesIO()
        _Writer(written, self).dump(message)
        file = self._file
        start = file.tell()
        file.write(written.getbuffer())
        file.flush()
        where = WHERE.pack(start, file.tell())
        socket.send_fds(connection, [where], [file.fileno()])

    def close(self) -> None:
        """Let go of the file; whoever has received it keeps it."""
        self._file.close()


def receive(connection: socket.socket) -> Message:
    """Return the next message, whose arrays are read-only views of shared memory.

    Raises `EOFError` or `OSError` if the other process has ended.
    """
    where, files, _, _ = socket.recv_fds(connection, WHERE.size, 1)
    if not files:
        raise EOFError
    with os.fdopen(files[0], "rb") as file:
        memory = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    start, stop = WHERE.unpack(where)
    return _Reader(io.BytesIO(memory[start:stop]), memory).load()


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

    def __init__(self, data: BinaryIO, memory: memoryview) -> None:
        super().__init__(data)
        self._memory = memory

    def persistent_load(self, pid: Place) -> Array:
        """Return the array of a place."""
        dtype, shape, stype, start, stop = pid
        array = Array(dtype, shape, stype, b"")
        # Flower takes bytes alone, which would be a copy.
        array.data = self._memory[start:stop]  # type: ignore[assignment]
        return array

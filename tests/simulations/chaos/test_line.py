"""A line hands on what is sent, is silent while it is cut, and works again after."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from threading import Thread

import pytest

from simulations.chaos.line import Line


@pytest.fixture
def line() -> Iterator[Line]:
    """A line to somebody who says everything once more."""

    def echo(called: socket.socket) -> None:
        with called:
            while data := called.recv(100):
                called.sendall(data)

    def listen() -> None:
        for _ in range(3):
            Thread(target=echo, args=(server.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=listen, daemon=True).start()
        with closing(Line(server.getsockname()[1])) as found:
            yield found


def answer(connection: socket.socket) -> bytes:
    """Return what comes back; nothing if the connection has been dropped."""
    try:
        connection.sendall(b"hello")
        return connection.recv(100)
    except OSError:
        return b""


def test_what_is_sent_is_handed_on_both_ways(line: Line) -> None:
    with socket.create_connection(("127.0.0.1", line.port), timeout=10) as connection:
        assert answer(connection) == b"hello"
        assert answer(connection) == b"hello"


def test_a_cut_drops_connections_and_turns_callers_away_until_it_is_mended(
    line: Line,
) -> None:
    place = ("127.0.0.1", line.port)
    with socket.create_connection(place, timeout=10) as connection:
        assert answer(connection) == b"hello"
        line.cut()
        assert answer(connection) == b""
    with socket.create_connection(place, timeout=10) as connection:
        assert answer(connection) == b""
    line.mend()
    with socket.create_connection(place, timeout=10) as connection:
        assert answer(connection) == b"hello"

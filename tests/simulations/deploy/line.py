"""A TCP connection that can be cut and mended."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Thread


class Line:
    """Hands on what comes to a ``port`` of its own to a ``target`` port, both ways.

    All on the loopback. While it is cut, what was connected is not any more, and who
    calls is turned away.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._whole = True
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._listen, daemon=True).start()

    def cut(self) -> None:
        """Drop all connections, and allow no new one."""
        self._whole = False
        for each in self._ends:
            _shut(each)

    def mend(self) -> None:
        self._whole = True

    def close(self) -> None:
        self.cut()
        _shut(self._listener)
        self._listener.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                called = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [caller, called]
                for pair in ((caller, called), (called, caller)):
                    Thread(target=_hand_on, args=pair, daemon=True).start()
                if not self._whole:
                    self.cut()


def _hand_on(source: socket.socket, sink: socket.socket) -> None:
    """Hand on what comes from one socket to another, until either has ended."""
    with suppress(OSError):
        while data := source.recv(2**16):
            sink.sendall(data)
    _shut(source)
    _shut(sink)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)

"""A TCP connection that can be cut and mended."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Lock, Thread

CHUNK = 2**16


class Line:
    """Hands on what comes to a ``port`` of its own to a ``target`` port, both ways.

    All on the loopback. While it is cut, what was connected is not any more, and who
    calls is turned away.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._whole = True
        self._lock = Lock()
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._listen, daemon=True).start()

    def cut(self) -> None:
        """Drop all connections, and allow no new one."""
        with self._lock:
            self._whole = False
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Allow connections again."""
        with self._lock:
            self._whole = True

    def close(self) -> None:
        """Cut it for good."""
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                Thread(target=self._connect, args=(caller,), daemon=True).start()

    def _connect(self, caller: socket.socket) -> None:
        with caller, suppress(OSError):
            called = socket.create_connection(("127.0.0.1", self._target))
            ends = {caller, called}
            with called:
                with self._lock:
                    if not self._whole:
                        return
                    self._sockets |= ends
                try:
                    back = Thread(target=_hand_on, args=(called, caller), daemon=True)
                    back.start()
                    _hand_on(caller, called)
                    back.join()
                finally:
                    with self._lock:
                        self._sockets -= ends


def _hand_on(source: socket.socket, sink: socket.socket) -> None:
    """Hand on what comes from one socket to another, until either has ended."""
    with suppress(OSError):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)

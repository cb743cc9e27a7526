"""How a SuperLink or a device is, for whoever asks at the address of `--health`.

`/health` answers 200, or 503 with a line that says what is wrong, and `/metrics` in the
words of Prometheus, if prometheus-client is installed. There is no password: use an
address of the loopback, or of a network of your own.
"""

from __future__ import annotations

import argparse
import socket
import sqlite3
import ssl
import sys
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import TypeAlias

import httpx

from cfl_flower.errors import ConfigError
from cfl_flower.settings import require_package
from simulations.deploy.addresses import read_address
from simulations.deploy.logs import FORMS, LOG

HEALTH = "CFL_FLOWER_HEALTH"
"""Environment variable: the address at which a process answers."""

TIMEOUT = 10.0
FORMAT = "text/plain; version=0.0.4; charset=utf-8"
"""Type of all pages, without which Prometheus 3 reads none."""

Sample: TypeAlias = tuple[str, Mapping[str, str], float]
"""A number with the name of its metric and its labels; a count's ends with `_total`."""


def add_watching(parser: argparse.ArgumentParser) -> None:
    """Add where a process tells how it is, and the form of its log."""
    add = parser.add_argument
    add("--health", metavar="HOST:PORT", default="", help="to ask how it is")
    add("--log", choices=FORMS, default="auto", help="auto: JSON for no terminal")


def variables(asked: argparse.Namespace) -> dict[str, str]:
    """Return the environment of a process with these arguments.

    Raises `ConfigError` for an address that cannot be used.
    """
    try:
        if asked.health:
            socket.create_server(read_address(asked.health, "--health")).close()
    except OSError as error:
        raise ConfigError(f"--health={asked.health} is not free ({error})") from error
    return {HEALTH: asked.health, LOG: asked.log}


def option(name: str) -> str:
    """Return the value of an option of this process; the last one counts."""
    given = sys.argv[::-1]
    return given[given.index(name) - 1]


def why_not(url: str, authority: str = "") -> str:
    """Return what is wrong with a page of another machine, or of this one itself.

    Nothing if it is there. Another one has a certificate of an ``authority``.
    """
    try:
        trust = ssl.create_default_context(cafile=authority) if authority else False
        proxies = bool(authority)
        page = httpx.get(url, verify=trust, trust_env=proxies, timeout=TIMEOUT)
    except (OSError, httpx.HTTPError) as error:
        return f"{url}: {error}"
    # A proxy may hide the page, and says so itself if the SuperLink is gone.
    return f"{url}: {page.status_code}" if page.is_server_error else ""


def exposition(samples: Iterable[Sample]) -> str:
    """Return samples as Prometheus reads them, or raise a `ConfigError`."""
    require_package("prometheus_client", "--health", "/metrics")
    from prometheus_client import generate_latest  # noqa: PLC0415
    from prometheus_client.core import Metric  # noqa: PLC0415

    found: dict[str, Metric] = {}
    for name, labels, value in samples:
        kind = "counter" if name.endswith("_total") else "gauge"
        stem = f"cfl_flower_{name.removesuffix('_total')}"
        metric = found.setdefault(name, Metric(stem, name.replace("_", " "), kind))
        metric.add_sample(f"cfl_flower_{name}", dict(labels), value)
    return str(generate_latest(SimpleNamespace(collect=found.values)), "utf-8")


def answer(
    path: str, wrong: str, samples: Callable[[], Iterable[Sample]]
) -> tuple[int, str]:
    """Return the HTTP status and the text of a page."""
    if path != "/metrics":
        return (503, wrong) if wrong else (200, "ok")
    healthy: Sample = ("healthy", {}, float(not wrong))
    try:
        return 200, exposition([healthy, *samples()])
    except (ConfigError, OSError, sqlite3.Error) as error:
        # The database and the folders of runs are others', and may go meanwhile.
        return 500, str(error)


def serve(
    address: str, check: Callable[[], str], samples: Callable[[], Iterable[Sample]]
) -> ThreadingHTTPServer:
    """Answer at an address, from threads.

    ``check`` says what is wrong, ``samples`` has the numbers.
    """

    class Page(BaseHTTPRequestHandler):
        timeout = TIMEOUT

        def do_GET(self) -> None:
            status, content = answer(self.path, check(), samples)
            self.send_response(status)
            self.send_header("Content-Type", FORMAT)
            self.end_headers()
            self.wfile.write(f"{content}\n".encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(read_address(address), Page)
    Thread(target=server.serve_forever, daemon=True).start()
    return server

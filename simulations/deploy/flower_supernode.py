"""Flower's SuperNode, as a process that ends once it has given up its connection.

A TLS connection that breaks off is an error after which Flower 1.41 calls nobody any
more, but its process goes on, so that no service manager starts it again. It is run by
its path, in whatever folder, and says how it is where `health` and `logs` read.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path

# This checkout's, behind all others.
sys.path.append(str(Path(__file__).parents[2]))

from simulations.deploy import health, logs
from simulations.deploy.health import option


def watch(address: str) -> None:
    """Tell how this process is, and whether it reaches the SuperLink."""
    counts: Counter[str] = Counter()

    def count(record: logging.LogRecord) -> bool:
        """Count a message that Flower's log says came, by its type."""
        received = str(record.msg).startswith("Receiving: ")
        if received and isinstance(record.args, tuple):
            counts[str(record.args[0])] += 1
        return True

    def samples() -> list[health.Sample]:
        return [("messages_total", {"type": k}, n) for k, n in counts.items()]

    logging.getLogger("flwr").addFilter(count)
    own = f"http://127.0.0.1:{option('--port')}/health"
    link = f"https://{option('--superlink')}/health"
    authority = option("--root-certificates")

    def check() -> str:
        return health.why_not(own) or health.why_not(link, authority)

    health.serve(address, check, samples)


def main() -> None:
    """Turn into Flower's command; exit code 1 if that returns."""
    logs.begin()
    print(" ".join(sys.orig_argv), flush=True)
    if address := os.environ.get(health.HEALTH):
        watch(address)
    (flower,) = entry_points(group="console_scripts", name="flower-supernode")
    flower.load()()
    print("the connection to the SuperLink was given up", file=sys.stderr, flush=True)
    # Not sys.exit, which waits for the thread that serves Flower's ClientApps.
    os._exit(1)


if __name__ == "__main__":
    main()

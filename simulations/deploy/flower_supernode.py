"""Flower's SuperNode, as a process that ends once it has given up its connection.

A TLS connection that breaks off is an error after which Flower 1.41 calls nobody any
more, but its process goes on, so that no service manager starts it again. It is run by
its path, in whatever folder, and needs nothing but Flower.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points


def main() -> None:
    """Turn into Flower's command; exit code 1 if that returns."""
    (command,) = entry_points(group="console_scripts", name="flower-supernode")
    command.load()()
    print("the connection to the SuperLink was given up", file=sys.stderr, flush=True)
    # Not sys.exit, which waits for the thread that serves Flower's ClientApps.
    os._exit(1)


if __name__ == "__main__":
    main()

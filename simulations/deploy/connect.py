r"""Tell Flower's CLI where a SuperLink is, and register the devices that may join.

    python -m simulations.deploy.connect prod superlink.example.org:9092 keys/ca.pem \
        keys/site-a.pub keys/site-b.pub

Afterwards `flwr list prod`, `flwr log RUN prod`, `flwr stop RUN prod` and
`flwr supernode list prod` speak to it. Keys can be added at any time; the SuperLink
remembers them.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import tomli_w

from cfl_flower.environment.files import write_atomically
from cfl_flower.errors import ConfigError, refused
from simulations.deploy.addresses import read_address, write_address
from simulations.engines.flower_cli import environment, flwr, need, one_line
from simulations.shell.terminal import Parser, command

KNOWN = "already in use"
"""Flower's message for a key that is registered."""


def add_connection(name: str, address: str, authority: Path) -> None:
    """Write a connection into Flower's own configuration.

    A `ConfigError` says that there is no certificate, or that it cannot be read.
    """
    path = Path(os.environ.get("FLWR_HOME", "~/.flwr"), "config.toml").expanduser()
    trusted = need(authority, "copy ca.pem from the machine that made it")
    with refused(f"{path} cannot be read", "fix it"):
        config = tomllib.loads(path.read_text()) if path.exists() else {}
    links = config.setdefault("superlink", {})
    links[name] = {"address": address, "root-certificates": str(trusted)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, tomli_w.dumps(config).encode())


def register(name: str, key: Path) -> None:
    """Let a device join, or raise a `ConfigError`; who is registered stays so."""
    path = str(need(key, "make it with simulations.deploy.keys"))
    words = ("supernode", "register", path, name, "--name", key.stem)
    done = flwr(*words, variables=environment())
    answer = one_line(done.stdout + done.stderr, most=300)
    if done.returncode and KNOWN not in answer:
        raise ConfigError(f"{key} was not registered: {answer}")
    print(f"{key}: {'was registered' if done.returncode else 'registered'}")


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    parser = Parser("deploy.connect", __doc__)
    parser.add_argument("name", metavar="NAME", help="what you call the SuperLink")
    parser.add_argument("superlink", metavar="HOST:PORT")
    parser.add_argument("authority", type=Path, metavar="CA", help="ca.pem")
    parser.add_argument("keys", type=Path, nargs="*", metavar="KEY.pub")
    asked = parser.parse_args(arguments)
    address = write_address(*read_address(asked.superlink))
    add_connection(asked.name, address, asked.authority)
    for key in asked.keys:
        register(asked.name, key)
    print(f"{asked.name} is {address}; see flwr supernode list {asked.name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

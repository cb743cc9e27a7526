r"""Tell Flower's CLI where a SuperLink is, and register the devices that may join.

    python -m simulations.deploy.connect prod superlink.example.org:9092 keys/ca.pem \
        keys/site-a.pub keys/site-b.pub

Afterwards `flwr list prod`, `flwr log RUN prod`, `flwr stop RUN prod` and
`flwr supernode list prod` speak to it. Keys can be added at any time; the SuperLink
remembers them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import tomli_w

from cfl_flower.errors import CflError, ConfigError
from cfl_flower.files import write_atomically
from simulations.flower_cli import environment, flwr, need, report

KNOWN = "already in use"
"""What Flower says of a key that is registered."""


def add_connection(home: Path, name: str, address: str, authority: Path) -> None:
    """Write a connection into Flower's own configuration.

    Raises
    ------
    ConfigError
        If the certificate is not there, or the configuration cannot be read.
    """
    path = home / "config.toml"
    trusted = need(authority, "copy ca.pem from the machine that made it")
    try:
        config = tomllib.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read ({error}); mend it") from error
    links = config.setdefault("superlink", {})
    links[name] = {"address": address, "root-certificates": str(trusted)}
    home.mkdir(parents=True, exist_ok=True)
    write_atomically(path, tomli_w.dumps(config).encode())


def register(name: str, keys: Sequence[Path], variables: Mapping[str, str]) -> None:
    """Let devices join; one that is registered already stays so.

    Raises
    ------
    ConfigError
        If a key is refused.
    """
    for key in keys:
        path = str(need(key, "make it with simulations.deploy.keys"))
        words = ("supernode", "register", path, name, "--name", key.stem)
        done = flwr(*words, variables=variables)
        answer = (done.stdout + done.stderr).strip()
        if done.returncode and KNOWN not in answer:
            raise ConfigError(f"{key} was not registered: {answer[-300:]}")
        print(f"{key}: {'was registered' if done.returncode else 'registered'}")


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="NAME", help="what you call the SuperLink")
    parser.add_argument("superlink", metavar="HOST:PORT")
    parser.add_argument("authority", type=Path, metavar="CA", help="ca.pem")
    parser.add_argument("keys", type=Path, nargs="*", metavar="KEY.pub")
    asked = parser.parse_args(arguments)
    home = Path(os.environ.get("FLWR_HOME", "~/.flwr")).expanduser()
    try:
        add_connection(home, asked.name, asked.superlink, asked.authority)
        register(asked.name, asked.keys, environment())
    except CflError as error:
        return report(error)
    print(f"{asked.name} is {asked.superlink}; see flwr supernode list {asked.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Start a SuperLink: TLS, only registered devices, and a database that survives it.

    python -m simulations.deploy.superlink keys --host 0.0.0.0 --home /srv/cfl-flower

Everything that it writes is below `--home`; a run's output_dir is relative to it unless
it is absolute. Stop it with Ctrl-C; start it again with the same command, and the
devices reconnect by themselves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cfl_flower.errors import CflError
from simulations.deploy.keys import AUTHORITY, SERVER
from simulations.flower_cli import become, environment, need, report

PORT = 9092


def command(keys: Path, home: Path, host: str, port: int) -> list[str]:
    """Return Flower's command.

    Raises
    ------
    ConfigError
        If a certificate or key is not there.
    """
    remedy = "make it with python -m simulations.deploy.keys KEYS --host NAME"
    return [
        *("flower-superlink", "--host", host, "--port", str(port)),
        *("--ssl-ca-certfile", str(need(keys / f"{AUTHORITY}.pem", remedy))),
        *("--ssl-certfile", str(need(keys / f"{SERVER}.pem", remedy))),
        *("--ssl-keyfile", str(need(keys / f"{SERVER}.key", remedy))),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        *("--database", str(home.absolute() / "state.db")),
    ]


def main(arguments: Sequence[str]) -> int:
    """Run the command; return only if it cannot start."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("keys", type=Path, metavar="KEYS", help="folder of the keys")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--home", type=Path, default=Path("superlink"))
    asked = parser.parse_args(arguments)
    home = asked.home.absolute()
    try:
        ready = command(asked.keys, home, asked.host, asked.port)
    except CflError as error:
        return report(error)
    become(ready, home, environment(home))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

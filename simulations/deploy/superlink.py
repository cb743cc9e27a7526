"""Start a SuperLink: TLS, only registered devices, and a database that survives it.

    python -m simulations.deploy.superlink keys --host 0.0.0.0 --home /srv/cfl-flower

Everything that it writes is below `--home`; a run's output_dir is relative to it unless
it is absolute. Stop it with Ctrl-C; start it again with the same command, and the
devices reconnect by themselves. What stands after `--` is for `flower-superlink`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from simulations.deploy import flower_superlink, health
from simulations.deploy.addresses import port, read_host
from simulations.deploy.keys import AUTHORITY, SERVER
from simulations.engines.flower_cli import become, divide, need
from simulations.shell.terminal import Parser, command

PORT = 9092
REMEDY = "make it with python -m simulations.deploy.keys KEYS --host NAME"


@command
def main(arguments: Sequence[str]) -> None:
    """Turn into Flower's command; return, with the exit code, only if it cannot."""
    parser = Parser("deploy.superlink", __doc__)
    parser.add_argument("keys", type=Path, metavar="KEYS", help="folder of the keys")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=port, default=PORT)
    parser.add_argument("--home", type=Path, default=Path("superlink"))
    health.add_watching(parser)
    own, more = divide(arguments)
    asked = parser.parse_args(own)
    if asked.host not in ("0.0.0.0", "::"):  # every address of this machine
        read_host(asked.host)
    keys = asked.keys
    home = asked.home.absolute()
    flower = [
        # Not its folder's modules under their short names (-P).
        *(sys.executable, "-P", flower_superlink.__file__),
        *("--host", asked.host, "--port", str(asked.port)),
        *("--ssl-ca-certfile", str(need(keys / f"{AUTHORITY}.pem", REMEDY))),
        *("--ssl-certfile", str(need(keys / f"{SERVER}.pem", REMEDY))),
        *("--ssl-keyfile", str(need(keys / f"{SERVER}.key", REMEDY))),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        *("--database", str(home / "state.db")),
    ]
    become(flower + more, home, health.variables(asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

r"""Start a device: a SuperNode with a key, a client id and a folder of its own.

    python -m simulations.deploy.supernode superlink.example.org:9092 keys \
        --client site-a --data-dir /data/site-a --home /var/lib/cfl-flower

`keys` holds `ca.pem` and the private key of the client's name. What the client must
remember between rounds is kept in `<home>/state`. Stop it with Ctrl-C; it reconnects by
itself whenever the SuperLink is there. What stands after `--` is for
`flower-supernode`, as `-- --trusted-entities /etc/cfl-flower/trusted.yaml`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cfl_flower.client.node_config import CLIENT_ID, NodeConfig
from cfl_flower.settings import require
from cfl_flower.types import ClientId
from simulations.deploy import flower_supernode, health
from simulations.deploy.addresses import port, read_address, write_address
from simulations.deploy.keys import AUTHORITY
from simulations.engines.flower_cli import become, divide, need
from simulations.shell.terminal import Parser, command

PORT = 9094
"""Port of the SuperNode's own processes, on the loopback only."""


def node_config(
    client: ClientId, home: Path, **words: ClientId | float | Path | None
) -> dict[str, ClientId | float]:
    """Return what the device says about itself, or raise a `ConfigError`.

    ``words`` are those of a `NodeConfig`, as `data_dir`; None and False are not said.
    """
    config: dict[str, ClientId | float] = {CLIENT_ID: client}
    for name, value in {"state_dir": home / "state", **words}.items():
        if value is not None and value is not False:
            told = str(value.absolute()) if isinstance(value, Path) else value
            config[name.replace("_", "-")] = told
    NodeConfig.of(config)
    return config


def supernode(
    superlink: str,
    key: Path,
    authority: Path,
    config: Mapping[str, ClientId | float],
    port: int = PORT,
) -> list[str]:
    """Return Flower's command; a `ConfigError` says which key is not there."""
    remedy = "copy it from the machine that made it (simulations.deploy.keys)"
    pairs = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    return [
        # Not its folder's modules under their short names (-P).
        *(sys.executable, "-P", flower_supernode.__file__, "--superlink", superlink),
        *("--root-certificates", str(need(authority, remedy))),
        *("--auth-supernode-private-key", str(need(key, remedy))),
        *("--port", str(port), "--node-config", pairs),
    ]


def client_id(text: str) -> ClientId:
    """Read a client id: digits are a number, the virtual client that a device plays."""
    return int(text) if text.isdecimal() else text


def add_device(parser: Parser, client_required: bool) -> None:
    """Add the arguments that say which device this is and where its files are."""
    add = parser.add_argument
    add("superlink", metavar="HOST:PORT", help="of the SuperLink")
    add("keys", type=Path, metavar="KEYS", help="folder of the keys")
    add("--client", required=client_required, help="client id")
    add("--data-dir", type=Path, help="the device's own samples")
    add("--home", type=Path, default=Path("supernode"), help="the device's files")


@command
def main(arguments: Sequence[str]) -> None:
    """Turn into Flower's command; return, with the exit code, only if it cannot."""
    parser = Parser("deploy.supernode", __doc__)
    add_device(parser, client_required=True)
    add = parser.add_argument
    masked = "send results behind masks alone, whatever a run says"
    add("--secure-sums", action="store_true", help=masked)
    fewest = "devices in a sum that this one adds to, whatever a run says"
    add("--least-members", type=int, metavar="N", help=f"fewest {fewest}")
    word = "JSON file with settings that every run must have"
    add("--settings", type=Path, metavar="FILE", help=word)
    names = "tell a server the names of columns, categories and classes"
    add("--tell-names", action="store_true", help=names)
    cases = "folder for each case's prediction in the last test, which never leaves it"
    add("--predictions", type=Path, metavar="FOLDER", help=cases)
    add("--port", type=port, default=PORT, help="on the loopback")
    health.add_watching(parser)
    own, more = divide(arguments)
    asked = parser.parse_args(own)
    least = asked.least_members
    require(least is None or least >= 2, "--least-members", least, "at least 2")
    home = asked.home.absolute()
    client = client_id(asked.client)
    words = {name: getattr(asked, name) for name in NodeConfig._field_defaults}
    config = node_config(client, home, data_dir=asked.data_dir, **words)
    # The key has the name as typed: client 7 may be device 007.
    key = asked.keys / asked.client
    authority = asked.keys / f"{AUTHORITY}.pem"
    address = write_address(*read_address(asked.superlink))
    flower = supernode(address, key, authority, config, asked.port)
    become(flower + more, home, health.variables(asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

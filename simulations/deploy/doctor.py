r"""Say what is wrong before a device, or a SuperLink, is started.

    python -m simulations.deploy.doctor superlink.example.org:9092 keys \
        --client site-a --data-dir /data/site-a --shape 3 32 32 --classes 10
    python -m simulations.deploy.doctor superlink.example.org:9092 keys --server

One line for each check: certificate (who signed it, its names, its dates), clock, key,
the folders for data and state. Exit code 0 if all is well, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TypeAlias

import httpx
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from cfl_flower.building import build
from cfl_flower.client.node_config import read_settings
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.reading.inferred import InferredDataset
from cfl_flower.data.reading.pool import PARTS
from cfl_flower.environment.files import make_folder
from cfl_flower.errors import CflError, ConfigError, refused
from cfl_flower.settings import require
from simulations.deploy.addresses import read_address, write_address
from simulations.deploy.keys import AUTHORITY, SERVER, alternative_name, load
from simulations.deploy.supernode import add_device, client_id, node_config
from simulations.engines.flower_cli import need
from simulations.shell.terminal import Parser, command, count

TIMEOUT = 10.0
SOON = timedelta(days=30)
TOLERANCE = 5.0
"""Seconds that a device's clock may be ahead, as Flower tolerates of signed calls."""

Check: TypeAlias = Callable[[], str]
"""Returns what is well, or raises a `CflError`: what is wrong, and what to do."""


def is_well(name: str, check: Check) -> bool:
    """Carry out one check, and print its line."""
    try:
        print(f"ok    {name:12}{check()}")
    except CflError as error:
        print(f"WRONG {name:12}{error}")
        return False
    return True


def call(host: str, port: int) -> tuple[x509.Certificate, str | None]:
    """Call the SuperLink, whoever it is; return its certificate and what time it says.

    Nothing is verified yet, as a wrong clock makes every certificate invalid.
    """
    url = f"https://{write_address(host, port)}/health"
    fault = f"no SuperLink answers at {host} port {port}"
    with refused(fault, "start it there, or open the firewall"):
        shown = ssl.get_server_certificate((host, port), timeout=TIMEOUT)
        page = httpx.get(url, verify=False, trust_env=False, timeout=TIMEOUT)
    certificate = x509.load_pem_x509_certificate(shown.encode())
    return certificate, page.headers.get("date")


def verify(certificate: x509.Certificate, authority: Path, host: str) -> str:
    """Let a certificate prove that it is of a SuperLink, and for a while."""
    content = need(authority, "copy ca.pem").read_bytes()
    try:
        signers = x509.load_pem_x509_certificates(content)
        builder = PolicyBuilder().store(Store(signers))
        builder.build_server_verifier(alternative_name(host)).verify(certificate, [])
    except ValueError as error:
        raise ConfigError(f"{authority} is no certificate; copy ca.pem") from error
    except VerificationError as error:
        reason = str(error).partition(" (encountered")[0]
        raise ConfigError(
            f"{reason}; copy the right ca.pem, or set the clock, or remove server.pem "
            f"and make it anew with simulations.deploy.keys --host {host}"
        ) from error
    end = certificate.not_valid_after_utc
    if end - datetime.now(UTC) < SOON:
        remedy = "remove server.pem and make it anew"
        raise ConfigError(f"it expires on {end:%Y-%m-%d}; {remedy}")
    return f"of {host}, signed by {authority.name}, until {end:%Y-%m-%d}"


def check_server(keys: Path, host: str) -> str:
    """Read the SuperLink's own certificate and key."""
    with refused(f"no certificate and key in {keys}", "make both, or copy them"):
        certificate, key = load(keys / SERVER)
    if key.public_key() != certificate.public_key():
        raise ConfigError("server.key is not the key of server.pem; make both anew")
    return verify(certificate, keys / f"{AUTHORITY}.pem", host)


def check_clock(host: str, port: int) -> str:
    """Compare this machine's clock with the SuperLink's."""
    _, date = call(host, port)
    if date is None:
        raise ConfigError("the SuperLink does not say what time it is; another server?")
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    # The header has whole seconds.
    if not -TOLERANCE < ahead < TOLERANCE + 1:
        raise ConfigError(f"{ahead:+.0f} s from the SuperLink's: calls fail; use NTP")
    return f"within {TOLERANCE:g} s of the SuperLink's"


def check_key(path: Path) -> str:
    """Read a device's private key, whose kind Flower checks."""
    content = need(path, "make it with simulations.deploy.keys").read_bytes()
    try:
        serialization.load_ssh_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: no OpenSSH key without passphrase") from error
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise ConfigError(f"others may read {path}; chmod 600 {path}")
    return path.name


def check_data(folder: Path, look: Folder | None, settings: Path) -> str:
    """Read a device's samples as a run would: of a look, or as its owner's settings."""
    need(folder, "make it, and put samples there")
    if look:
        train, test = (pool.labels for pool in look.load(str(folder)))
    else:
        dataset = build(json.loads(read_settings(settings)).get("dataset"))
        allowed = "a file whose dataset names its class, as _target_"
        require(isinstance(dataset, InferredDataset), "--settings", settings, allowed)
        parts = dataset.stored(str(folder))
        train, test = (parts[part]["y"] for part in PARTS)
    labels = len(set(train.tolist()))
    return f"{len(train)} samples of {labels} labels, {len(test)} to test"


def check_folder(key: str, folder: Path) -> str:
    """Write into a folder."""
    make_folder(key, folder)
    return f"{folder} can be written"


def plan(asked: argparse.Namespace) -> dict[str, Check]:
    """Choose the checks that concern the machine."""
    host, port = read_address(asked.superlink)
    keys = asked.keys
    home = asked.home.absolute()
    data = asked.data_dir
    authority = keys / f"{AUTHORITY}.pem"
    if asked.server:
        return {
            "certificate": lambda: check_server(keys, host),
            "home": lambda: check_folder("home", home),
        }
    checks: dict[str, Check] = {
        "certificate": lambda: verify(call(host, port)[0], authority, host),
        "clock": lambda: check_clock(host, port),
        "state": lambda: check_folder("state", home / "state"),
    }
    if asked.client is not None:
        client = client_id(asked.client)
        checks["key"] = lambda: check_key(keys / asked.client)
        checks["identity"] = lambda: ", ".join(
            f"{key} {value}"
            for key, value in node_config(client, home, data_dir=data).items()
        )
    if data:
        known = (tuple(asked.shape), asked.classes, tuple(asked.names))
        look = None if asked.settings else Folder(*known)
        checks["data"] = lambda: check_data(data, look, asked.settings)
    return checks


@command
def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    parser = Parser("deploy.doctor", __doc__)
    add_device(parser, client_required=False)
    add = parser.add_argument
    add("--server", action="store_true", help="this is the SuperLink")
    add("--shape", type=count, nargs="+", default=[3, 32, 32])
    add("--classes", type=count, default=10)
    add("--names", nargs="*", default=[], help="of the class folders")
    word = "the device's settings, for data that are no images or .npz files"
    add("--settings", type=Path, metavar="FILE", help=word)
    checks = plan(parser.parse_args(arguments))
    findings = [is_well(name, check) for name, check in checks.items()]
    return int(not all(findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

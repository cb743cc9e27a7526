r"""Say what is wrong before a device, or a SuperLink, is started.

    python -m simulations.deploy.doctor superlink.example.org:9092 keys \
        --client site-a --data-dir /data/site-a --shape 3 32 32 --classes 10
    python -m simulations.deploy.doctor superlink.example.org:9092 keys --server

One line for each check: versions, address, certificate (who signed it, its names, its
dates), clock, key, the folders for data and state. Exit code 0 if all is well, else 1.
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from packaging.requirements import Requirement

from cfl_flower.data.own import Folder
from cfl_flower.errors import CflError, ConfigError
from cfl_flower.types import ClientId
from simulations.deploy.keys import AUTHORITY, SERVER
from simulations.deploy.supernode import client_id, node_config
from simulations.flower_cli import report

NEEDS = Path(__file__).with_name("device.txt")
TIMEOUT = 10.0
SOON = timedelta(days=30)
TOLERANCE = 5.0
"""Seconds that a device's clock may be ahead, as Flower tolerates of signed calls."""

Check: TypeAlias = Callable[[], str]


@dataclass(frozen=True)
class Finding:
    """What came of one check.

    Attributes
    ----------
    name : str
    well : bool
    detail : str
        What was found; if it is not well, also what to do.
    """

    name: str
    well: bool
    detail: str


class Unwell(Exception):  # noqa: N818 - what a patient is
    """A check that failed: what is wrong, and what to do."""


def examine(checks: Sequence[tuple[str, Check]]) -> Iterator[Finding]:
    """Carry out checks one by one, whatever becomes of the others."""
    for name, check in checks:
        try:
            yield Finding(name, True, check())
        except (Unwell, CflError) as error:
            yield Finding(name, False, str(error))


def check_versions(needs: Path = NEEDS) -> str:
    """Compare what is installed with what the project needs."""
    lines = [line.partition("#")[0].strip() for line in needs.read_text().splitlines()]
    found = []
    for need in (Requirement(line) for line in lines if line):
        try:
            here = version(need.name)
        except PackageNotFoundError as error:
            raise Unwell(
                f"{need.name} is missing; pip install -r {needs.name}"
            ) from error
        if not need.specifier.contains(here.partition("+")[0], prereleases=True):
            raise Unwell(f"{need} is needed, {here} is here; pip install '{need}'")
        found.append(f"{need.name} {here}")
    return ", ".join(found[:4])


def split_address(text: str) -> tuple[str, int]:
    """Split HOST:PORT.

    Examples
    --------
    >>> split_address("superlink.example.org:9092"), split_address("[::1]:9092")
    (('superlink.example.org', 9092), ('::1', 9092))
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"{text} is no address; use HOST:PORT")
    return host.strip("[]"), int(port)


def check_address(host: str, port: int) -> str:
    """Look the name up and open a connection."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise Unwell(f"{host} has no address ({error.strerror}); mend DNS") from error
    address = str(found[0][4][0])
    try:
        socket.create_connection((host, port), TIMEOUT).close()
    except OSError as error:
        raise Unwell(
            f"nobody answers at {address} port {port} ({error.strerror or error}); "
            "start the SuperLink there, or open the firewall"
        ) from error
    return f"{address} port {port} answers"


def check_certificate(host: str, port: int, authority: Path) -> str:
    """Let the SuperLink prove that it is who it is called."""
    with _connect(host, port, authority) as secure:
        expires = (secure.getpeercert() or {}).get("notAfter", "")
    end = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(expires)), UTC)
    if end - datetime.now(UTC) < SOON:
        raise Unwell(
            f"it expires on {end:%Y-%m-%d}; remove server.pem and make it anew"
        )
    return f"of {host}, signed by {authority.name}, until {end:%Y-%m-%d}"


def _connect(host: str, port: int, authority: Path) -> ssl.SSLSocket:
    try:
        context = ssl.create_default_context(cafile=str(authority))
    except (OSError, ssl.SSLError) as error:
        raise Unwell(f"{authority} is no certificate ({error}); copy ca.pem") from error
    try:
        plain = socket.create_connection((host, port), TIMEOUT)
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise Unwell(_explain(error, host, authority)) from error
    except ssl.SSLError as error:
        raise Unwell(
            f"no TLS at port {port} ({error.reason}); another server?"
        ) from error
    except OSError as error:
        raise Unwell(f"no connection ({error.strerror or error})") from error


def _explain(error: ssl.SSLCertVerificationError, host: str, authority: Path) -> str:
    """Say what is wrong with a certificate, by OpenSSL's numbers."""
    renew = "remove server.pem and make it anew with simulations.deploy.keys"
    reasons = {
        9: "it is not valid yet; the clock of this machine, or of the one that made it",
        10: f"it has expired; {renew}, or set this machine's clock",
        18: f"it is self-signed, not by {authority}; copy the right ca.pem",
        19: f"{authority} did not sign it; copy the right ca.pem",
        20: f"{authority} did not sign it; copy the right ca.pem",
        62: f"it is not of {host}; {renew} --host {host}",
        64: f"it is not of {host}; {renew} --host {host}",
    }
    return reasons.get(error.verify_code, error.verify_message)


def check_clock(host: str, port: int) -> str:
    """Compare this machine's clock with the SuperLink's."""
    # A wrong clock makes certificates invalid: only the time is asked, and of anybody.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        host, port, timeout=TIMEOUT, context=context
    )
    try:
        connection.request("GET", "/")
        date = connection.getresponse().getheader("date")
    except (OSError, http.client.HTTPException) as error:
        raise Unwell(f"the SuperLink does not say what time it is ({error})") from error
    finally:
        connection.close()
    if date is None:
        raise Unwell("the SuperLink does not say what time it is; another server?")
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    # The header has whole seconds.
    if not -TOLERANCE < ahead < TOLERANCE + 1:
        raise Unwell(f"{ahead:+.0f} s from the SuperLink's; signed calls fail: use NTP")
    return f"within {TOLERANCE:g} s of the SuperLink's"


def check_key(path: Path) -> str:
    """Read a device's private key."""
    if not path.exists():
        raise Unwell(f"{path} is not there; make it with simulations.deploy.keys")
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Unwell(f"{path} is no OpenSSH private key without passphrase") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Unwell(f"{path} is no elliptic-curve key; Flower wants one")
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise Unwell(f"others may read {path}; chmod 600 {path}")
    return f"{path.name}, {key.curve.name}"


def check_server(keys: Path, host: str) -> str:
    """Read the SuperLink's own certificate and key."""
    try:
        certificate = x509.load_pem_x509_certificate(
            (keys / f"{SERVER}.pem").read_bytes()
        )
        key = serialization.load_pem_private_key(
            (keys / f"{SERVER}.key").read_bytes(), password=None
        )
    except (OSError, ValueError) as error:
        raise Unwell(f"no certificate and key in {keys} ({error})") from error
    if key.public_key() != certificate.public_key():
        raise Unwell("server.key is not the key of server.pem; make both anew")
    names = [
        str(name.value)
        for name in certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    ]
    if host not in names:
        raise Unwell(
            f"server.pem is of {', '.join(names)}, not of {host}; make it anew"
        )
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    if left < SOON:
        raise Unwell(f"server.pem expires in {left.days} days; make it anew")
    return f"of {', '.join(names)}, for {left.days} days"


def check_identity(client: ClientId, data: Path | None, home: Path) -> str:
    """Say what the device would say of itself."""
    return ", ".join(f"{k} {v}" for k, v in node_config(client, data, home).items())


def check_data(folder: Path, dataset: Folder) -> str:
    """Read a device's samples as a run would."""
    if not folder.is_dir():
        raise Unwell(f"{folder} is not there; make it, and put samples there")
    train, test = dataset.load(str(folder))
    labels = len(set(train.labels.tolist()))
    return f"{len(train.labels)} samples of {labels} labels, {len(test.labels)} to test"


def check_folder(folder: Path) -> str:
    """Write into a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Unwell(f"{folder} cannot be written ({error.strerror})") from error
    return f"{folder} can be written"


def plan(asked: argparse.Namespace) -> list[tuple[str, Check]]:
    """Choose the checks that concern the machine."""
    host, port = split_address(asked.superlink)
    home: Path = asked.home.absolute()
    authority = asked.keys / f"{AUTHORITY}.pem"
    checks: list[tuple[str, Check]] = [("versions", check_versions)]
    if asked.server:
        checks += [("certificate", lambda: check_server(asked.keys, host))]
        return [*checks, ("home", lambda: check_folder(home))]
    checks += [
        ("address", lambda: check_address(host, port)),
        ("certificate", lambda: check_certificate(host, port, authority)),
        ("clock", lambda: check_clock(host, port)),
        ("state", lambda: check_folder(home / "state")),
    ]
    if asked.client is not None:
        client = client_id(asked.client)
        checks += [
            ("key", lambda: check_key(asked.keys / asked.client)),
            ("identity", lambda: check_identity(client, asked.data_dir, home)),
        ]
    if asked.data_dir:
        look = (tuple(asked.shape), asked.classes, tuple(asked.names))
        checks += [("data", lambda: check_data(asked.data_dir, Folder(*look)))]
    return checks


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("superlink", metavar="HOST:PORT", help="of the SuperLink")
    parser.add_argument("keys", type=Path, metavar="KEYS", help="folder of the keys")
    parser.add_argument("--server", action="store_true", help="this is the SuperLink")
    parser.add_argument("--client", help="client id")
    parser.add_argument("--data-dir", type=Path, help="the device's own samples")
    parser.add_argument("--home", type=Path, default=Path("supernode"))
    parser.add_argument("--shape", type=int, nargs="+", default=[3, 32, 32])
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--names", nargs="*", default=[], help="of the class folders")
    asked = parser.parse_args(arguments)
    try:
        findings = list(examine(plan(asked)))
    except CflError as error:
        return report(error)
    for finding in findings:
        print(f"{'ok' if finding.well else 'WRONG':6}{finding.name:12}{finding.detail}")
    return 0 if all(finding.well for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

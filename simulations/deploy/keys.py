"""Make a certificate authority, the SuperLink's certificate, and keys of devices.

    python -m simulations.deploy.keys keys --host superlink.example.org 10.0.0.5
    python -m simulations.deploy.keys keys --device site-a site-b

What exists is kept, so that a device can be added at any time; to make the SuperLink's
certificate anew, before it expires or for another name, remove `server.pem` first.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cfl_flower.settings import require
from cfl_flower.types import is_client_id
from simulations.deploy.addresses import read_host
from simulations.engines.flower_cli import need
from simulations.shell.terminal import Parser, command

AUTHORITY = "ca"
SERVER = "server"
AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
LONGEST_COMMON_NAME = 64
"""Characters, of which a certificate's own name has at most so many."""

CURVE = ec.SECP384R1()
"""Flower asks for a NIST curve of nodes' keys."""


def make_authority(folder: Path) -> None:
    """Make `ca.pem`, which devices and operators receive; `ca.key` nobody does."""
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    extensions = {x509.BasicConstraints(ca=True, path_length=0): True, usage: True}
    _issue(folder / AUTHORITY, "cfl-flower authority", AUTHORITY_DAYS, extensions)


def make_server(folder: Path, hosts: Sequence[str]) -> None:
    """Make `server.pem` and `server.key` for the names by which devices call.

    The loopback addresses are always among them: the SuperLink calls itself. A
    `ConfigError` says that the authority's key is not there.
    """
    remedy = f"the authority that made {AUTHORITY}.pem must sign"
    need(folder / f"{AUTHORITY}.key", remedy)
    called = [read_host(host, wildcard=True) for host in hosts]
    names = dict.fromkeys([*called, "localhost", "127.0.0.1"])
    # Longer ones are among the alternatives alone, which is where clients look.
    short = called[0] if len(called[0]) <= LONGEST_COMMON_NAME else "cfl-flower server"
    extensions = {
        x509.BasicConstraints(ca=False, path_length=None): True,
        x509.SubjectAlternativeName(map(alternative_name, names)): False,
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]): False,
    }
    authority = load(folder / AUTHORITY)
    _issue(folder / SERVER, short, SERVER_DAYS, extensions, authority)


def make_device(folder: Path, name: str) -> None:
    """Make a device's private key, `<name>`, and its public one, `<name>.pub`."""
    path = folder / name
    key = ec.generate_private_key(CURVE)
    _write_key(path, key, PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_name(f"{name}.pub").write_bytes(public + f" {name}\n".encode())


def check_device(name: str) -> None:
    """Raise `ConfigError` for a name that is no client id, or of another file."""
    require(is_client_id(name), "--device", name, "up to 64 of A-Z a-z 0-9 . _ -")
    reserved = {AUTHORITY, SERVER}
    require(name not in reserved, "--device", name, "another name than ca or server")


def load(path: Path) -> tuple[x509.Certificate, PrivateKeyTypes]:
    """Read a certificate, `<path>.pem`, and its key, `<path>.key`."""
    content = path.with_suffix(".pem").read_bytes()
    secret = path.with_suffix(".key").read_bytes()
    key = load_pem_private_key(secret, password=None)
    return x509.load_pem_x509_certificate(content), key


def alternative_name(host: str) -> x509.IPAddress | x509.DNSName:
    """Return a host, as `read_host` gives it, as certificates have it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _issue(
    path: Path,
    name: str,
    days: int,
    extensions: Mapping[x509.ExtensionType, bool],
    authority: tuple[x509.Certificate, PrivateKeyTypes] | None = None,
) -> None:
    """Write a new key and its certificate, which an authority or itself signs.

    ``extensions`` come with whether they are critical.
    """
    key = ec.generate_private_key(CURVE)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer = subject
    signer = key
    if authority is not None:
        assert isinstance(authority[1], ec.EllipticCurvePrivateKey)
        issuer = authority[0].subject
        signer = authority[1]
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Devices' clocks may be a bit behind.
        .not_valid_before(now - timedelta(minutes=10))
        .not_valid_after(now + timedelta(days=days))
    )
    for extension, critical in {**extensions, by: False, own: False}.items():
        builder = builder.add_extension(extension, critical)
    certificate = builder.sign(signer, hashes.SHA384())
    _write_key(path.with_suffix(".key"), key, PrivateFormat.PKCS8)
    path.with_suffix(".pem").write_bytes(certificate.public_bytes(Encoding.PEM))


def _write_key(
    path: Path, key: ec.EllipticCurvePrivateKey, form: PrivateFormat
) -> None:
    data = key.private_bytes(Encoding.PEM, form, NoEncryption())
    # Only the owner may read it, from the first moment on.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(data)


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    parser = Parser("deploy.keys", __doc__)
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="for all files")
    add("--host", nargs="+", default=[], help="names and addresses of the SuperLink")
    add("--device", nargs="+", default=[], help="client ids")
    asked = parser.parse_args(arguments)
    folder: Path = asked.folder
    some = bool(asked.host or asked.device)
    require(some, "--host, --device", "", "at least one")
    for host in asked.host:
        read_host(host, wildcard=True)
    for name in asked.device:
        check_device(name)
    folder.mkdir(parents=True, exist_ok=True)
    wanted: dict[Path, Callable[[], None]] = {}
    if asked.host:
        wanted[folder / f"{AUTHORITY}.pem"] = partial(make_authority, folder)
        wanted[folder / f"{SERVER}.pem"] = partial(make_server, folder, asked.host)
    for name in asked.device:
        wanted[folder / name] = partial(make_device, folder, name)
    fresh = [path for path in wanted if not path.exists()]
    for path in fresh:
        wanted[path]()
    for path in wanted:
        print(f"{path}: {'made' if path in fresh else 'was there, kept'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

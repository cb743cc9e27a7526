"""Make a certificate authority, the SuperLink's certificate, and keys of devices.

    python -m simulations.deploy.keys keys --host superlink.example.org 10.0.0.5
    python -m simulations.deploy.keys keys --device site-a site-b

What exists is kept, so that a device can be added at any time; to make the SuperLink's
certificate anew, before it expires or for another name, remove `server.pem` first.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cfl_flower.errors import CflError, ConfigError
from cfl_flower.settings import require
from cfl_flower.types import is_client_id
from simulations.flower_cli import report

AUTHORITY, SERVER = "ca", "server"
AUTHORITY_DAYS, SERVER_DAYS = 3650, 825
CURVE = ec.SECP384R1()
"""Flower asks for a NIST curve of nodes' keys."""


def make_authority(folder: Path) -> bool:
    """Make `ca.pem`, which devices and operators receive, and `ca.key`, which nobody.

    Returns
    -------
    bool
        False if it was there.
    """
    if (folder / f"{AUTHORITY}.pem").exists():
        return False
    key = ec.generate_private_key(CURVE)
    name = _name("cfl-flower authority")
    certificate = (
        _builder(name, name, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA384())
    )
    _write_key(folder / f"{AUTHORITY}.key", key)
    _write_certificate(folder / f"{AUTHORITY}.pem", certificate)
    return True


def make_server(folder: Path, hosts: Sequence[str]) -> bool:
    """Make `server.pem` and `server.key` for the names by which devices call.

    The loopback addresses are always among them: the SuperLink calls itself.

    Raises
    ------
    ConfigError
        If the authority's key is not there.
    """
    if (folder / f"{SERVER}.pem").exists():
        return False
    try:
        issuer = x509.load_pem_x509_certificate(
            (folder / f"{AUTHORITY}.pem").read_bytes()
        )
        signer = serialization.load_pem_private_key(
            (folder / f"{AUTHORITY}.key").read_bytes(), password=None
        )
    except OSError as error:
        raise ConfigError(
            f"{error.filename} is not there; the authority that made {AUTHORITY}.pem "
            "must sign"
        ) from error
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{folder / AUTHORITY}.key is no elliptic-curve key")
    key = ec.generate_private_key(CURVE)
    names = dict.fromkeys([*hosts, "localhost", "127.0.0.1"])
    certificate = (
        _builder(_name(hosts[0]), issuer.subject, key.public_key(), SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName(map(_alternative, names)), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
            critical=False,
        )
        .sign(signer, hashes.SHA384())
    )
    _write_key(folder / f"{SERVER}.key", key)
    _write_certificate(folder / f"{SERVER}.pem", certificate)
    return True


def make_device(folder: Path, name: str) -> bool:
    """Make a device's private key, `<name>`, and its public one, `<name>.pub`.

    Raises
    ------
    ConfigError
        If the name cannot be a client id.
    """
    require(is_client_id(name), "--device", name, "up to 64 of A-Z a-z 0-9 . _ -")
    reserved = {AUTHORITY, SERVER}
    require(name not in reserved, "--device", name, "another name than ca or server")
    path = folder / name
    if path.exists():
        return False
    key = ec.generate_private_key(CURVE)
    _write_key(path, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_name(f"{name}.pub").write_bytes(public + f" {name}\n".encode())
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # Devices' clocks may be a bit behind.
        .not_valid_before(now - timedelta(minutes=10))
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(
    path: Path,
    key: ec.EllipticCurvePrivateKey,
    form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> None:
    data = key.private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    )
    # Nobody else may read it, from the first moment on.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(data)


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for all files")
    parser.add_argument(
        "--host", nargs="+", default=[], help="names and addresses of the SuperLink"
    )
    parser.add_argument("--device", nargs="+", default=[], help="client ids")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    asked = parse(arguments)
    folder: Path = asked.folder
    try:
        require(
            bool(asked.host or asked.device), "--host, --device", "", "at least one"
        )
        folder.mkdir(parents=True, exist_ok=True)
        made = {}
        if asked.host:
            made[f"{AUTHORITY}.pem"] = make_authority(folder)
            made[f"{SERVER}.pem"] = make_server(folder, asked.host)
        made |= {name: make_device(folder, name) for name in asked.device}
    except CflError as error:
        return report(error)
    for name, fresh in made.items():
        print(f"{folder / name}: {'made' if fresh else 'was there, kept'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

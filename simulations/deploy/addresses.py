"""Names and addresses of a SuperLink, which all commands read in the same way."""

from __future__ import annotations

import argparse
import re
from ipaddress import ip_address

import idna

from cfl_flower.errors import ConfigError, one_line
from cfl_flower.settings import require

LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
"""One of the parts of a name between dots; container networks have names with _."""

NAME = re.compile(rf"(?:\*\.)?(?:{LABEL}\.)*(?!\d+$){LABEL}")
"""A name of DNS. Its last part is no number: such a name would be an IP address. The
first may be a `*` in certificates."""

LONGEST_NAME = 253
"""Characters of a name of DNS."""

LARGEST_PORT = 65535


def read_host(text: str, key: str = "--host", wildcard: bool = False) -> str:
    """Return a name in ASCII, or an IP address without brackets.

    Raises `ConfigError` for anything by which no device can call a SuperLink.

    Examples
    --------
    >>> read_host("[2001:db8::1]"), read_host("München.example.org")
    ('2001:db8::1', 'xn--mnchen-3ya.example.org')
    """
    shown = one_line(text) or '""'
    if "://" in text:
        rest = text.partition("://")[2]
        raise ConfigError(f"{key}={shown} is not allowed; write {rest} without scheme")
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        address = ip_address(bare)
    except ValueError:
        return _read_name(text, shown, key, wildcard)
    # Of a zone, as in fe80::1%eth0, only one machine knows what it is.
    ok = not address.is_unspecified and not address.is_multicast and "%" not in bare
    ok = ok and (address.version == 6 or bare == text)
    require(ok, key, shown, "the name or the address by which devices call")
    return str(address)


def _read_name(text: str, shown: str, key: str, wildcard: bool) -> str:
    allowed = "a name such as superlink.example.org or an IP address, and nothing else"
    host, colon, port = text.rpartition(":")
    if colon and port.isdecimal() and (":" not in host or host.endswith("]")):
        allowed = f"{host} alone, without the port"
    name = text.removesuffix(".").lower()
    if not name.isascii():
        try:
            name = idna.encode(name, uts46=True).decode("ascii")
        except idna.IDNAError as error:
            raise ConfigError(
                f"{key}={shown} is not allowed; use {allowed} ({one_line(str(error))})"
            ) from error
    ok = len(name) <= LONGEST_NAME and NAME.fullmatch(name) is not None
    require(ok and (wildcard or "*" not in name), key, shown, allowed)
    return name


def read_address(text: str, key: str = "HOST:PORT") -> tuple[str, int]:
    """Split HOST:PORT, an IPv6 address in brackets; `ConfigError` if it is none.

    Examples
    --------
    >>> read_address("superlink.example.org:9092"), read_address("[::1]:9092")
    (('superlink.example.org', 9092), ('::1', 9092))
    """
    host, colon, port = text.rpartition(":")
    if "://" in text or not colon or port.endswith("]"):
        host = read_host(text, key)  # what is wrong with it, if anything is
        raise ConfigError(f"{key}={host} is not allowed; add the port, as in :9092")
    bare = ":" in host and not host.startswith("[")
    require(not bare, key, one_line(text), "an IPv6 address in brackets: [::1]:9092")
    host = read_host(host, key)
    ok = re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= LARGEST_PORT
    allowed = f"HOST:PORT with a port from 1 to {LARGEST_PORT}"
    require(bool(ok), key, one_line(text), allowed)
    return host, int(port)


def write_address(host: str, port: int) -> str:
    """Return HOST:PORT, an IPv6 address in brackets.

    Examples
    --------
    >>> write_address("::1", 9092)
    '[::1]:9092'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def port(text: str) -> int:
    """Read the number of a port from a command line."""
    if not (text.isdecimal() and 1 <= int(text) <= LARGEST_PORT):
        raise argparse.ArgumentTypeError(
            f"{text} is not allowed; use a port from 1 to {LARGEST_PORT}"
        )
    return int(text)

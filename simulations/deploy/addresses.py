"""Names and addresses of a SuperLink, which all commands read in the same way."""

from __future__ import annotations

import argparse
import re
from ipaddress import ip_address

from cfl_flower.errors import one_line
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
    """Return a name, or an IP address without brackets.

    Raises `ConfigError` for anything by which no device can call a SuperLink.

    Examples
    --------
    >>> read_host("[2001:db8::1]"), read_host("SuperLink.example.org.")
    ('2001:db8::1', 'superlink.example.org')
    """
    name = text.removesuffix(".").lower()
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        address = ip_address(bare)
    except ValueError:
        ok = len(name) <= LONGEST_NAME and NAME.fullmatch(name) is not None
        ok = ok and (wildcard or "*" not in name)
    else:
        name = str(address)
        # Of a zone, as in fe80::1%eth0, only one machine knows what it is.
        ok = not address.is_unspecified and not address.is_multicast and "%" not in bare
        ok = ok and (address.version == 6 or bare == text)
    allowed = (
        "a name such as superlink.example.org in ASCII (xn--...), or the IP address by "
        "which devices call, without scheme, port and zone"
    )
    require(ok, key, one_line(text) or '""', allowed)
    return name


def read_address(text: str, key: str = "HOST:PORT") -> tuple[str, int]:
    """Split HOST:PORT, an IPv6 address in brackets; `ConfigError` if it is none.

    Examples
    --------
    >>> read_address("superlink.example.org:9092"), read_address("[::1]:9092")
    (('superlink.example.org', 9092), ('::1', 9092))
    """
    host, _, port = text.rpartition(":")
    bare = ":" in host and not host.startswith("[")
    ok = re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= LARGEST_PORT
    allowed = f"HOST:PORT with a port from 1 to {LARGEST_PORT}, IPv6 in brackets"
    require(bool(ok) and not bare, key, one_line(text), allowed)
    return read_host(host, key), int(port)


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
        allowed = f"a port from 1 to {LARGEST_PORT}"
        raise argparse.ArgumentTypeError(f"{text} is not allowed; use {allowed}")
    return int(text)

"""Who a node is: the question, its answer, and the public key that it keeps in a run.

A public key is one to share secrets, and one to verify signatures. The key that a
client announces first in a run stays its key.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from flwr.app import ConfigRecord, Message, RecordDict

from cfl_flower.environment.code_version import code_digest
from cfl_flower.environment.files import write_atomically
from cfl_flower.errors import InvalidResultError, intact
from cfl_flower.types import ClientId, is_client_id

IDENTITY = "identity"
"""Name of the record with the question, and with the answer."""

WORDS = "words"
"""Name of the record with a question about a device's data, and with the answer."""

CLIENT = "client-id"
NODES = "nodes"
KEY = "key"
CODE = "code"

OTHER_CODE = "code"
"""Why a node is refused that runs other code than the server."""

KEY_BYTES = 32
"""Length of each half of a public key: X25519's to share secrets, Ed25519's to
verify."""

FIELD = 2**255 - 19
"""Size of the field of X25519 (RFC 7748): a key is a number below it."""

SIGNING = b"cfl-flower signing"


class Identity(NamedTuple):
    """What a node reports that it is."""

    client: ClientId | None = None
    """Identifier of a device."""
    nodes: int = 0
    """Number of nodes of a simulation, else 0."""
    key: bytes = b""
    """The public key of a device's masks; empty if it was not asked for one."""


def ask_identity(run: str) -> RecordDict:
    """Return the question; with a run's token, also for the public key in this run."""
    return RecordDict({IDENTITY: ConfigRecord({KEY: run})})


def asked_run(content: RecordDict) -> str:
    """Return the token of the run in which a device is to report its public key."""
    return str(content.config_records[IDENTITY].get(KEY, ""))


def pack_identity(identity: Identity) -> RecordDict:
    """Return the answer, with the version of the code."""
    record = ConfigRecord({CODE: code_digest()})
    if identity.client is not None:
        record[CLIENT] = identity.client
    if identity.nodes:
        record[NODES] = identity.nodes
    if identity.key:
        record[KEY] = identity.key
    return RecordDict({IDENTITY: record})


def read_identity(reply: Message) -> Identity:
    """Read what a node reports that it is, trusting nothing.

    Raises `InvalidResultError` if it cannot run the app, runs other code (`OTHER_CODE`)
    or makes no sense.
    """
    if reply.has_error():
        detail = f"a node cannot run the app: {last_sentence(reply)}"
        raise InvalidResultError("node", detail)
    record: Any = reply.content.config_records.get(IDENTITY, ConfigRecord({}))
    client = record.get(CLIENT)
    nodes = record.get(NODES, 0)
    key = record.get(KEY, b"")
    known = client is None or is_client_id(client)
    opens = isinstance(key, bytes) and (not key or is_public_key(key))
    counts = isinstance(nodes, int) and nodes >= 0
    if CODE not in record or not (known and opens and counts):
        raise InvalidResultError("node", f"a node says {dict(record)!r:.200}")
    if record[CODE] != code_digest():
        detail = "a device runs other code than the server; give it the same version"
        raise InvalidResultError(OTHER_CODE, detail)
    return Identity(client, nodes, key)


def pack_words(text: str) -> RecordDict:
    """Return a record with a text: what is asked about data, and what is answered."""
    return RecordDict({WORDS: ConfigRecord({WORDS: text})})


def read_words(content: RecordDict) -> str:
    """Return the text of a record; empty if there is none."""
    return str(content.config_records.get(WORDS, ConfigRecord({})).get(WORDS, ""))


def last_sentence(reply: Message) -> str:
    """Return the last sentence of what a node says about its error, or its start."""
    lines = [line.strip() for line in str(reply.error.reason).splitlines()]
    last = next((line for line in reversed(lines) if line), "unknown reason")
    # Flower quotes what a ClientApp raises, in two ways: of a simulation, and of a
    # device.
    for mark in (" occurred. Message: ", ">:<'"):
        _, raised, said = last.partition(mark)
        if raised:
            return said.removesuffix("'>")[:200]
    return last.split(". ")[0][:200]


def public_key(secret: bytes) -> bytes:
    """Return the public key, 64 bytes, of a device's secret of 32."""
    key = X25519PrivateKey.from_private_bytes(secret)
    signer = signing_key(secret).public_key()
    return key.public_key().public_bytes_raw() + signer.public_bytes_raw()


def signing_key(secret: bytes) -> Ed25519PrivateKey:
    """Return the key with which a device signs, which follows from its secret."""
    own = HKDF(hashes.SHA256(), KEY_BYTES, None, SIGNING).derive(secret)
    return Ed25519PrivateKey.from_private_bytes(own)


def any_in_common(keys: Sequence[bytes]) -> bool:
    """Return whether two of some public keys have a half in common.

    Who copied another's signing key would sign twice.
    """
    halves = [(key[:KEY_BYTES], key[KEY_BYTES:]) for key in keys]
    return any(len(set(each)) < len(keys) for each in zip(*halves, strict=True))


def is_public_key(key: bytes) -> bool:
    """Return whether a secret in common can be made with a public key.

    None can with a point of low order, with which any attempt would fail. A number
    above the field's size is a second way to write another key.
    """
    if len(key) != 2 * KEY_BYTES:
        return False
    if int.from_bytes(key[:KEY_BYTES], "little") >= FIELD:
        return False
    try:
        peer = X25519PublicKey.from_public_bytes(key[:KEY_BYTES])
        X25519PrivateKey.generate().exchange(peer)
    except ValueError:
        return False
    return True


FIRST_KEYS = ".first-keys.json"
"""The file in a run's folder."""


class FirstKeys:
    """First keys, on disk, so that they are the same after the server was restarted.

    ``run`` is the run's token: the keys of another run in the folder are forgotten.
    Raises `ConfigError` if the file is damaged.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._path = folder / FIRST_KEYS
        self.run = run
        self._keys: dict[ClientId, bytes] = {}
        if not self._path.exists():
            return
        remedy = "remove it, and each device's next key is taken for its first"
        with intact(self._path, remedy):
            known, rows = json.loads(self._path.read_text())
            keys = {client: bytes.fromhex(key) for client, key in rows}
        if known == run:
            self._keys = keys

    def is_first(self, client: ClientId, key: bytes) -> bool:
        """Return whether a client announced this key first."""
        return self._keys.get(client) == key

    def take(self, client: ClientId, key: bytes) -> str | None:
        """Take a client's first key, or return why another one is not its key."""
        others = [each for name, each in self._keys.items() if name != client]
        taken = any(any_in_common([key, each]) for each in others)
        if client not in self._keys and not taken:
            self._keys[client] = key
            rows = [[each, known.hex()] for each, known in self._keys.items()]
            write_atomically(self._path, json.dumps([self.run, rows]).encode())
        if self.is_first(client, key):
            return None
        return "another's" if taken else "not its first one"

"""The key that a client announces first in a run stays its key, and nobody else's."""

import pytest

from cfl_flower.communication.identity import (
    FIRST_KEYS,
    KEY_BYTES,
    FirstKeys,
    public_key,
)
from cfl_flower.errors import ConfigError

OWN, OTHER, LATER = (public_key(bytes([place] * 32)) for place in (1, 2, 3))

CLAIMS = {
    "its own once more": ("a", OWN, None),
    "another one": ("a", LATER, "not its first one"),
    "another's": ("a", OTHER, "another's"),
    "a new client's own": ("c", LATER, None),
    "a copy of a key": ("c", OWN, "another's"),
    # Who copied a signing key would sign twice; who copied the other half would have
    # that one's secrets in common with all.
    "a copy to share secrets": ("c", OWN[:KEY_BYTES] + LATER[KEY_BYTES:], "another's"),
    "a copy to sign": ("c", LATER[:KEY_BYTES] + OWN[KEY_BYTES:], "another's"),
    "halves of two": ("c", OWN[:KEY_BYTES] + OTHER[KEY_BYTES:], "another's"),
    "half its own": ("a", OWN[:KEY_BYTES] + LATER[KEY_BYTES:], "not its first one"),
    "half its own, half another's": (
        "a",
        OWN[:KEY_BYTES] + OTHER[KEY_BYTES:],
        "another's",
    ),
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_key_is_one_clients_and_a_client_has_one(claim, restarted, tmp_path):
    client, key, refusal = CLAIMS[claim]
    keys = FirstKeys(tmp_path, "run")
    assert keys.take("a", OWN) is None
    assert keys.take("b", OTHER) is None
    if restarted:
        keys = FirstKeys(tmp_path, "run")
    written = (tmp_path / FIRST_KEYS).read_bytes()
    assert keys.take(client, key) == refusal
    assert keys.is_first(client, key) == (refusal is None)
    # What was refused neither is remembered nor takes another's place.
    if refusal is not None:
        assert (tmp_path / FIRST_KEYS).read_bytes() == written
    assert keys.is_first("a", OWN)
    assert keys.is_first("b", OTHER)


def test_keys_of_another_run_in_the_folder_are_forgotten(tmp_path):
    FirstKeys(tmp_path, "run").take("a", OWN)
    assert FirstKeys(tmp_path, "run").take("a", LATER) == "not its first one"
    other = FirstKeys(tmp_path, "other")
    assert not other.is_first("a", OWN)
    assert other.take("a", LATER) is None
    assert other.take("b", OWN) is None


@pytest.mark.parametrize("text", ["", "[]", '["run", [["a", "no hex"]]]', '["run"]'])
def test_damaged_first_keys_are_one_line(text, tmp_path):
    (tmp_path / FIRST_KEYS).write_text(text)
    with pytest.raises(ConfigError, match=r"cannot be read .*; remove it"):
        FirstKeys(tmp_path, "run")

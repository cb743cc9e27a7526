from __future__ import annotations

import pytest

from cfl_flower.errors import LONGEST, InvalidResultError, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ValueError: no, 7 < 8 µs", "ValueError: no, 7 < 8 µs"),
        ("no\nclient 1, train: shape", "no\\nclient 1, train: shape"),
        ("\x1b[2J\r\t\0", "\\x1b[2J\\r\\t\\x00"),
        ("\ud800", "\\ud800"),
        ("a\u2028b\u202ec", "a\\u2028b\\u202ec"),
        ("x" * LONGEST, "x" * LONGEST),
        ("x" * 10**6, "x" * (LONGEST - 1) + "…"),
        ("\n" * LONGEST, ("\\n" * LONGEST)[: LONGEST - 1] + "…"),
    ],
)
def test_a_clients_text_becomes_one_short_line(text: str, shown: str) -> None:
    assert printable(text) == shown
    shown.encode()


def test_a_refusal_is_printable() -> None:
    error = InvalidResultError("rai\nsed", "\ud800" * 1000)
    assert error.reason == "rai\\nsed"
    assert error.detail == str(error)
    assert len(error.detail) == LONGEST
    error.detail.encode()

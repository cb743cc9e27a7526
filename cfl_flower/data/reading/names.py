"""Names of classes, owners and categories: what is one has one number."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from cfl_flower.errors import ConfigError
from cfl_flower.types import IntArray

WHOLE = re.compile(r"[+-]?\d{1,999}(\.0*)?(e\+?\d{1,2})?", re.IGNORECASE)
"""A whole number, but for one that Python takes too long to read."""

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,2})?", re.IGNORECASE)


def spelling(name: str) -> str:
    """Return the one way in which a name is written: whole numbers as integers.

    Examples
    --------
    >>> [spelling(each) for each in ("1", "1.0", "01", "1e2", "1.5", "one")]
    ['1', '1', '1', '100', '1.5', 'one']
    """
    plain = name.strip()
    # Through a decimal number, which may be of any size.
    return (
        str(int(Decimal(plain))) if WHOLE.fullmatch(plain) else normalize("NFC", name)
    )


def numbered_names(
    values: Sequence[NDArray[np.generic]], what: str
) -> tuple[NDArray[np.str_], list[IntArray]]:
    """Return distinct names as text in their order, and the place of each value.

    Whole numbers are in the order of their size, and are one name however they are
    written. Raises `ConfigError`, which says ``what`` they are, if other names differ
    in a way that one hardly sees.
    """
    both = np.concatenate([of.astype(str) for of in values])
    found, places = np.unique(both, return_inverse=True)
    texts = found.tolist()
    whole = all(WHOLE.fullmatch(text.strip()) for text in texts)
    texts = [spelling(text) if whole else normalize("NFC", text) for text in texts]
    names = sorted(set(texts), key=int if whole else None)
    if not whole:
        _refuse_alike(names, what)
    number = {name: place for place, name in enumerate(names)}
    numbers = np.asarray([number[text] for text in texts], np.int64)
    limits = np.cumsum([len(of) for of in values])[:-1]
    return np.asarray(names, str), np.split(numbers[places.reshape(-1)], limits)


def _refuse_alike(names: Sequence[str], what: str) -> None:
    """Refuse names that hardly differ, but for single letters."""
    seen: dict[Decimal | str, str] = {}
    for each in names:
        other = seen.setdefault(_seen(each), each)
        if other != each:
            raise ConfigError(
                f"{what} {other!r} and {each!r} say the same in two ways (blanks, "
                "capitals, true for 1, 1.50 for 1.5, or characters that look alike); "
                "write them alike, or call them something else if they differ"
            )


def _seen(name: str) -> Decimal | str:
    """Return what a reader takes a name for."""
    text = " ".join(normalize("NFKC", name).split())
    # Some characters have no width.
    plain = "".join(filter(str.isprintable, text))
    if len(plain) > 1:
        plain = plain.casefold()
    plain = {"true": "1", "false": "0"}.get(plain, plain)
    return Decimal(plain) if NUMBER.fullmatch(plain) else plain

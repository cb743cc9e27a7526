"""LEAF's json files: each sample belongs to the user who wrote it.

A file holds ``users``, ``num_samples`` and ``user_data``, which gives each user's ``x``
and ``y``. LEAF writes them to ``data/train`` and ``data/test``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfl_flower.data.pool import Arrays
from cfl_flower.data.reading import (
    PARTS,
    FileDataset,
    blank,
    find,
    intact,
    named,
    numbered,
)
from cfl_flower.errors import ConfigError
from cfl_flower.settings import settings
from cfl_flower.types import IntArray

LETTERS = range(36, 46)
"""'a' to 'j' among LEAF's 62 classes: digits, capitals, small letters."""

TOKENS, VECTOR = 25, 300


class User(NamedTuple):
    """One user's samples in one file."""

    name: str
    x: Any
    y: IntArray


@settings("dataset")
class LeafDataset(FileDataset):
    """A dataset in LEAF's layout, below ``<data_dir>/<name>/data``."""

    def files(self) -> tuple[str, ...]:
        """Return LEAF's two folders of json files."""
        return tuple(self.part(part) for part in PARTS)

    def part(self, part: str) -> str:
        """Return the pattern of one part's files."""
        return f"{self.name}/data/{part}/*.json"

    def inputs(self, users: list[User], data_dir: str) -> NDArray[np.float32]:
        """Return the inputs of these users, one after the other."""
        raise NotImplementedError

    def users(self, path: Path) -> list[User]:
        """Read one file.

        Raises
        ------
        ConfigError
        """
        raise NotImplementedError

    def select(self, everyone: Mapping[str, list[User]]) -> Mapping[str, list[User]]:
        """Return what is kept of each part: everything."""
        return everyone

    def arrays(self, data_dir: str) -> Arrays:
        """Read all users, numbered by name over both parts.

        Raises
        ------
        ConfigError
        """
        everyone = {
            part: [
                user
                for path in find(data_dir, self.part(part))
                for user in self.users(path)
            ]
            for part in PARTS
        }
        kept = {
            part: [user for user in users if len(user.y)]
            for part, users in self.select(everyone).items()
        }
        number = numbered(user.name for users in kept.values() for user in users)
        arrays: dict[str, NDArray[Any]] = {}
        for part, users in kept.items():
            if not users:
                raise ConfigError(
                    f"{self.name} in data_dir={data_dir} has no sample of the chosen "
                    f"classes in {self.part(part)}"
                )
            owner = [number[user.name] for user in users]
            arrays |= named(
                part,
                x=self.inputs(users, data_dir),
                y=np.concatenate([user.y for user in users]),
                owner=np.repeat(owner, [len(user.y) for user in users]),
            )
        return arrays


def user_data(path: Path) -> Iterable[tuple[str, list[Any], list[Any]]]:
    """Give the name, x and y of each user in a file.

    Raises
    ------
    ValueError
        If the file is not whole.
    """
    with path.open(encoding="utf-8") as file:
        content = json.load(file)
    for name in content["users"]:
        x, y = content["user_data"][name]["x"], content["user_data"][name]["y"]
        if len(x) != len(y):
            raise ValueError(f"user {name} has {len(x)} inputs and {len(y)} labels")
        yield name, x, y


@settings("dataset")
class Femnist(LeafDataset):
    """FEMNIST: characters, 28x28, grey, by their writers."""

    letters: bool = False
    """Only 'a' to 'j', as classes 0 to 9. Files whose labels all are below 10 hold just
    these already, as FedProx's generator writes them."""
    name: ClassVar[str] = "femnist"
    shape: ClassVar[tuple[int, ...]] = (1, 28, 28)

    @property
    def classes(self) -> int:
        """Number of labels, L."""
        return len(LETTERS) if self.letters else 62

    def users(self, path: Path) -> list[User]:
        """Read one file; pixels stay as LEAF gives them, in [0, 1].

        Raises
        ------
        ConfigError
        """
        with intact(path):
            return [
                User(name, *self._checked(name, x, y)) for name, x, y in user_data(path)
            ]

    @staticmethod
    def _checked(
        name: str, x: list[Any], y: list[Any]
    ) -> tuple[NDArray[np.float32], IntArray]:
        pixels = np.asarray(x, np.float32).reshape(len(y), *Femnist.shape)
        labels = np.asarray(y, np.int64)
        if len(y) and not (labels.min() >= 0 and labels.max() < 62):
            raise ValueError(f"user {name} has a label outside of 0 to 61")
        return pixels, labels

    def select(self, everyone: Mapping[str, list[User]]) -> Mapping[str, list[User]]:
        """Keep the letters, if only these are asked for."""
        highest = max(
            (user.y.max(initial=0) for users in everyone.values() for user in users),
            default=0,
        )
        if not self.letters or highest < len(LETTERS):
            return everyone
        return {part: list(map(_letters, users)) for part, users in everyone.items()}

    def inputs(self, users: list[User], data_dir: str) -> NDArray[np.float32]:
        """Return the pixels, shape (n, 1, 28, 28)."""
        del data_dir
        x = blank((sum(len(user.y) for user in users), *self.shape), np.float32)
        return np.concatenate([user.x for user in users], out=x)


def _letters(user: User) -> User:
    mask = np.isin(user.y, LETTERS)
    return User(user.name, user.x[mask], user.y[mask] - LETTERS.start)


@settings("dataset")
class Sent140(LeafDataset):
    """Sentiment140: positive and negative tweets, as 25 GloVe word vectors.

    An input is (25, 300): the first 25 tokens' vectors; words without a vector and
    missing tokens are zeros. The vectors are in ``sent140/glove.6B.300d.txt``.
    """

    name: ClassVar[str] = "sent140"
    shape: ClassVar[tuple[int, ...]] = (TOKENS, VECTOR)
    classes: ClassVar[int] = 2
    vectors: ClassVar[str] = "sent140/glove.6B.300d.txt"

    def files(self) -> tuple[str, ...]:
        """Return LEAF's json files and the word vectors."""
        return (*super().files(), self.vectors)

    def users(self, path: Path) -> list[User]:
        """Read one file; x stays a list of token lists.

        Raises
        ------
        ConfigError
        """
        with intact(path):
            return [
                User(name, [tokens(tweet[4]) for tweet in x], sentiments(y))
                for name, x, y in user_data(path)
            ]

    def inputs(self, users: list[User], data_dir: str) -> NDArray[np.float32]:
        """Return the word vectors, shape (n, 25, 300)."""
        tweets = [tweet for user in users for tweet in user.x]
        words = {word for tweet in tweets for word in tweet}
        known = glove(Path(data_dir, self.vectors), words)
        x = blank((len(tweets), *self.shape), np.float32)
        for row, tweet in enumerate(tweets):
            for place, word in enumerate(tweet):
                x[row, place] = known.get(word, 0)
        return x


def tokens(text: str) -> list[str]:
    """Split a tweet by LEAF's rule, in lower case, and keep the first 25.

    Examples
    --------
    >>> tokens("Don't go, @Tom!")
    ["don't", 'go', ',', 'tom', '!']
    """
    return re.findall(r"[\w']+|[.,!?;]", text.lower())[:TOKENS]


def sentiments(labels: list[Any]) -> IntArray:
    """Return 0 for negative and 1 for positive, which the raw tweets write as 4.

    Raises
    ------
    ValueError
        If a label is anything else.
    """
    values = np.asarray(labels, dtype=str).astype(np.int64)
    if not np.isin(values, (0, 1, 4)).all():
        raise ValueError("a label is none of 0, 1 and 4")
    return np.minimum(values, 1)


def glove(path: Path, words: set[str]) -> dict[str, NDArray[np.float32]]:
    """Read the vectors of some words, one per line: the word, then 300 numbers.

    Raises
    ------
    ConfigError
    """
    found = {}
    with intact(path), path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            word, *values = line.rstrip("\n").split(" ")
            if len(values) != VECTOR:
                raise ValueError(f"line {number} has {len(values)} of {VECTOR} numbers")
            if word in words:
                found[word] = np.asarray(values, np.float32)
    return found

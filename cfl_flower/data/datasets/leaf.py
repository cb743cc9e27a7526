"""LEAF's json files: each sample belongs to the user who wrote it.

A file holds ``users``, ``num_samples`` and ``user_data``, which gives each user's ``x``
and ``y``. LEAF writes them to ``data/train`` and ``data/test``.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfl_flower.data.reading.files import blank, find
from cfl_flower.data.reading.pool import PARTS
from cfl_flower.data.reading.samples import SampleTable
from cfl_flower.errors import intact
from cfl_flower.settings import settings

LETTERS = range(36, 46)
"""'a' to 'j' among LEAF's 62 classes: digits, capitals, small letters."""

TOKENS = 25
VECTOR = 300

Labelled: TypeAlias = tuple[Any, int]
"""What a sample's input is made of, and its label."""


class LeafDataset(SampleTable):
    """A dataset in LEAF's layout, below ``<data_dir>/<name>/data``."""

    def files(self) -> tuple[str, ...]:
        """Return LEAF's two folders of json files."""
        return tuple(f"{self.name}/data/{part}/*.json" for part in PARTS)

    @abstractmethod
    def user_samples(self, name: str, x: list[Any], y: list[Any]) -> Iterable[Labelled]:
        """Return one user's samples, or raise ValueError if LEAF writes others."""

    def samples(self, data_dir: str) -> pd.DataFrame:
        """Return the samples of all users."""
        found: list[tuple[Any, ...]] = []
        for part, pattern in zip(PARTS, self.files(), strict=False):
            for path in find(data_dir, pattern):
                with intact(path):
                    content = json.loads(path.read_text(encoding="utf-8"))
                    for name in content["users"]:
                        user = content["user_data"][name]
                        samples = self._checked(name, user["x"], user["y"])
                        found += ((*sample, name, part) for sample in samples)
        return pd.DataFrame(found, columns=["content", "label", "owner", "part"])

    def _checked(self, name: str, x: list[Any], y: list[Any]) -> Iterable[Labelled]:
        """Return one user's samples, each of which has an integer as its label."""
        if len(x) != len(y):
            raise ValueError(f"user {name} has {len(x)} inputs and {len(y)} labels")
        if any(int(label) != float(label) for label in y):
            raise ValueError(f"user {name} has a label that is no integer")
        return self.user_samples(name, x, y)


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

    def user_samples(self, name: str, x: list[Any], y: list[Any]) -> Iterator[Labelled]:
        """Return one writer's samples; pixels stay as LEAF gives them, in [0, 1]."""
        # Numbers too large for float32 become infinite.
        with np.errstate(over="ignore"):
            pixels = np.asarray(x, np.float32).reshape(len(y), *self.shape)
        if not np.isfinite(pixels).all():
            raise ValueError(f"user {name} has a pixel that is no number")
        for image, label in zip(pixels, map(int, y), strict=True):
            if not 0 <= label < 62:
                raise ValueError(f"user {name} has a label outside of 0 to 61")
            yield image, label

    def samples(self, data_dir: str) -> pd.DataFrame:
        """Return the samples of all writers, or the letters if only these are kept."""
        rows = super().samples(data_dir)
        if not self.letters or rows["label"].max() < len(LETTERS):
            return rows
        letters = rows[rows["label"].isin(LETTERS)]
        return letters.assign(label=letters["label"] - LETTERS.start)

    def inputs(self, rows: pd.DataFrame, data_dir: str) -> NDArray[np.float32]:
        """Return the pixels, shape (n, 1, 28, 28)."""
        contents = rows["content"].tolist()
        return np.stack(contents, out=blank((len(contents), *self.shape), np.float32))


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

    def user_samples(self, name: str, x: list[Any], y: list[Any]) -> Iterator[Labelled]:
        """Return one user's tweets as lists of tokens."""
        for tweet, label in zip(x, map(int, y), strict=True):
            if label not in (0, 1, 4):
                raise ValueError("a label is none of 0, 1 and 4")
            # 0 is negative; positive is 1, or 4 in the raw tweets.
            yield tokens(tweet[4]), min(label, 1)

    def inputs(self, rows: pd.DataFrame, data_dir: str) -> NDArray[np.float32]:
        """Return the word vectors, shape (n, 25, 300)."""
        contents = rows["content"].tolist()
        words = {word for tweet in contents for word in tweet}
        known = glove(Path(data_dir, self.vectors), words)
        x = blank((len(contents), *self.shape), np.float32)
        for row, tweet in enumerate(contents):
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


def glove(path: Path, words: set[str]) -> dict[str, NDArray[np.float32]]:
    """Read words and 300 numbers, one word per line, or raise `ConfigError`."""
    found = {}
    with intact(path), path.open(encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            word, *values = line.rstrip("\n").split(" ")
            if len(values) != VECTOR:
                raise ValueError(f"line {number} has {len(values)} of {VECTOR} numbers")
            if word in words:
                found[word] = np.asarray(values, np.float32)
                if not np.isfinite(found[word]).all():
                    raise ValueError(f"line {number} has a value that is no number")
    return found

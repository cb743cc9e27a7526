"""What a device says of its data in words, and what devices agree on by these.

The columns of a table and their categories, and the names of classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from cfl_flower.data.reading.names import numbered_names, spelling
from cfl_flower.data.reading.scaling import Input
from cfl_flower.errors import ConfigError
from cfl_flower.types import ClientId

LONGEST = 2**24
"""Characters of a device's words."""

MOST_NAMES = 10_000
"""Inputs, and classes, of which a device says the names."""

LONGEST_NAME = 1_000
"""Characters of a name."""

SHOWN = 5
"""Classes that a line names."""

Name: TypeAlias = Annotated[str, Field(max_length=LONGEST_NAME)]


class Words(TypedDict):
    """What a device says of its data, in words."""

    shape: Annotated[list[Annotated[int, Field(gt=0)]], Field(max_length=10)]
    classes: Annotated[list[Name], Field(min_length=1, max_length=MOST_NAMES)]
    inputs: Annotated[list[tuple[Name, Name | None]], Field(max_length=MOST_NAMES)]
    """The column and the category, if it has some, of each input of a table."""


def parse_words(text: str) -> Words:
    """Return a device's words, or raise `ConfigError` for those that no data make."""
    if len(text) > LONGEST:
        raise ConfigError(f"its words are none: more than {LONGEST:,} characters")
    try:
        words = TypeAdapter(Words).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"its words are none: {place}: {first['msg']}") from error
    known = agree({"it": words})
    counts = len(known["agreed"]), known["classes"]
    if counts != (len(words["inputs"]), len(words["classes"])):
        raise ConfigError("it names an input or a class twice")
    return words


def agree(words: Mapping[ClientId, Words]) -> dict[str, Any]:
    """Return the settings of a dataset of which some devices have parts.

    Columns are in the order of the first. Raises `ConfigError` if they do not have the
    same ones, in numbers or in texts, or inputs of different shapes.

    Examples
    --------
    >>> one = Words(shape=[1], classes=["no"], inputs=[("city", "Ulm")])
    >>> two = Words(shape=[1], classes=["yes"], inputs=[("city", "Bern")])
    >>> found = agree({"a": one, "b": two})
    >>> found["names"], [each["category"] for each in found["agreed"]]
    (['no', 'yes'], ['Bern', 'Ulm'])
    """
    (first, ours), *others = words.items()
    shapes = {client: {"x": f"shape {of['shape']}"} for client, of in words.items()}
    kinds = {c: kinds_of(of["inputs"]) or shapes[c] for c, of in words.items()}
    for client, _ in others:
        require_alike(first, kinds[first], client, kinds[client])
    told: dict[str, list[str]] = {column: [] for column, _ in ours["inputs"]}
    for column, text in chain.from_iterable(of["inputs"] for of in words.values()):
        told[column] += [] if text is None else [text]
    agreed: list[Input] = []
    for column, texts in told.items():
        found = numbered_names([np.asarray(texts, str)], f"column {column}:")[0]
        named = [Input(column=column, category=text) for text in found.tolist()]
        agreed += named or [Input(column=column)]
    classes = [np.asarray(of["classes"], str) for of in words.values()]
    names = numbered_names(classes, "the classes")[0].tolist()
    shape = [len(agreed)] if agreed else ours["shape"]
    return {"shape": shape, "classes": len(names), "names": names, "agreed": agreed}


def strangers(words: Mapping[ClientId, Words]) -> list[str]:
    """Return a line for each of several clients whose classes no other one has.

    Nobody can tell at a distance whether they mean the same in other words.
    """
    spelt = {who: {*map(spelling, of["classes"])} for who, of in words.items()}
    counts = Counter(chain.from_iterable(spelt.values()))
    alone = [who for who, own in spelt.items() if all(counts[of] == 1 for of in own)]
    told = "has classes that no other client has"
    return [
        f"client {who} {told}: {', '.join(sorted(spelt[who])[:SHOWN])}; write them "
        "alike if they mean the same"
        for who in alone
        if len(words) > 1
    ]


def pairs_of(inputs: Sequence[Input]) -> list[tuple[str, str | None]]:
    """Return the column and the category, if it has some, of each input."""
    return [(each.get("column", ""), each.get("category")) for each in inputs]


def kinds_of(pairs: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """Return whether each column has texts or numbers."""
    return {name: "numbers" if text is None else "texts" for name, text in pairs}


def require_alike(
    one: object, ours: Mapping[str, str], other: object, theirs: Mapping[str, str]
) -> None:
    """Raise `ConfigError` for a column that two do not both have in one kind."""
    if differ := sorted(name for name, _ in ours.items() ^ theirs.items()):
        kinds = [of.get(differ[0], "no such column") for of in (ours, theirs)]
        told = f"column {differ[0]}: {one} has {kinds[0]}, {other} has {kinds[1]}"
        remedy = (
            "write them alike, or name others in dataset.features; a column without "
            "any value counts as numbers"
        )
        raise ConfigError(f"{told}; {remedy}")

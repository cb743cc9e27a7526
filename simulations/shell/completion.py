"""What an override may go on with, for the shell's completion.

What the line has chosen already counts: after ``strategy=stocfl``, its settings are
known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from cfl_flower.config.composition import (
    Composition,
    chosen_options,
    compose_plain,
    settings_at,
)
from cfl_flower.config.options import GROUPS, list_options
from cfl_flower.errors import ConfigError


def complete_override(words: Sequence[str], begun: str) -> list[str]:
    """Return what the last word of a line may become.

    Examples
    --------
    >>> complete_override(["strategy=stocfl"], "strategy.thr")
    ['strategy.threshold=0.5']
    >>> complete_override([], "drift=sw")
    ['drift=swap_all', 'drift=swap_part']
    """
    whole, begun, cut = _rejoined(words, begun)
    try:
        composition = compose_plain(chosen_options(whole), own_parts=False)
    except ConfigError:
        return []  # A mistake before: the command will say so.
    found = _step(begun, composition)
    # The shell adds a space to a single one, which may end neither in "=" nor in ".".
    while len(found) == 1 and found[0] != begun and found[0][-1] in "=.":
        begun = found[0]
        found = _step(found[0], composition) or [found[0]]
    return [each[cut:] for each in found]


def complete_choice(begun: str) -> list[str]:
    """Return the groups and methods whose names begin so."""
    names = [*GROUPS, "experiment", *list_options("strategy")]
    return [name for name in names if name.startswith(begun)]


def _rejoined(words: Sequence[str], begun: str) -> tuple[list[str], str, int]:
    """Undo that bash takes ``=`` for a word of its own.

    Returns the words before, the last word, and how much of it the shell leaves alone.
    """
    whole: list[str] = []
    for word in words:
        joined = whole and (word == "=" or whole[-1].endswith("="))
        whole[-1:] = [whole[-1] + word] if joined else [*whole[-1:], word]
    if begun == "" and whole and not {"=", "-"} & {*whole[-1]}:
        key = whole.pop() + "="  # It was "key=": typer leaves the sign out at the end.
        return whole, key, len(key)
    if whole and whole[-1].endswith("="):
        key = whole.pop()
        return whole, key + begun, len(key)
    return whole, begun, 0


def _step(begun: str, composition: Composition) -> list[str]:
    key, equals, value = begun.partition("=")
    return _values(key, value, composition) if equals else _keys(begun, composition)


def _values(key: str, begun: str, composition: Composition) -> list[str]:
    """Return options of a group, several after commas, or a setting's default."""
    bare = key.lstrip("+")
    earlier, comma, last = begun.rpartition(",")
    if options := list_options(bare):
        return [f"{key}={earlier}{comma}{o}" for o in options if o.startswith(last)]
    parent, _, name = bare.rpartition(".")
    there = settings_at(parent, composition.settings)
    default = there.get(name)
    if name not in there or isinstance(default, Mapping):
        return []
    known = [True, False] if isinstance(default, bool) else [default]
    shown = [
        each if isinstance(each, str) else json.dumps(each, separators=(",", ":"))
        for each in known
    ]
    return [f"{key}={each}" for each in shown if each.startswith(begun)]


def _keys(begun: str, composition: Composition) -> list[str]:
    """Return the groups, of one level, and the settings whose keys begin so."""
    groups = [
        f"{group}="
        for group in composition.choices
        if group.startswith(begun)
        and group.count("/") == begun.count("/")
        and not group.startswith("hydra")
    ]
    parent, dot, name = begun.rpartition(".")
    settings = [
        f"{parent}{dot}{key}{'.' if isinstance(value, Mapping) and value else '='}"
        for key, value in settings_at(parent, composition.settings).items()
        if key.startswith(name) and key != "_target_"
    ]
    return sorted({*groups, *settings})

"""docs/architecture.md names what exists, and counts calls and types as they are."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`((?:cfl_flower|strategies|clients)\.[\w.]+)`", PAGE)))
CALLS = re.findall(r"^\| (\d+) \| `([\w.]+)`", PAGE, re.MULTILINE)
TYPES = 11
"""Most types of our own on the way of a training task."""


def find(path: str) -> Any:
    """Return the module, class, function or method behind a dotted path."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(path)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_page_exists(name: str) -> None:
    assert find(name) is not None


def test_calls_of_a_training_task_are_numbered_and_at_most_25() -> None:
    assert [int(number) for number, _ in CALLS] == list(range(1, len(CALLS) + 1))
    assert 20 < len(CALLS) <= 25
    assert all(callable(find(name)) for _, name in CALLS)


def test_training_task_makes_the_calls_of_the_page_in_their_order(
    run_small: Callable[..., Any],
) -> None:
    order = {inspect.unwrap(find(name)).__code__: name for _, name in CALLS}
    made: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        del argument
        name = order.get(frame.f_code)
        if event == "call" and name is not None:
            made.append(name)

    sys.setprofile(note)
    try:
        run_small("strategy=fedavg", "rounds=2", "drift.rounds=[]")
    finally:
        sys.setprofile(None)
    first = CALLS[0][1]
    second_round = made[len(made) - 1 - made[::-1].index(first) :]
    assert list(dict.fromkeys(second_round)) == [name for _, name in CALLS]


def test_types_of_a_training_task_are_listed_and_at_most_eleven() -> None:
    (listed,) = re.findall(r"types of our own.*?are eleven:(.*?)\n\n", PAGE, re.DOTALL)
    types = [find(name) for name in re.findall(r"`([\w.]+)`", listed)]
    assert len(types) == TYPES
    assert all(isinstance(each, type) for each in types)


def test_every_package_of_cfl_flower_has_a_row() -> None:
    packages = {
        path.parent.name for path in (ROOT / "cfl_flower").glob("*/__init__.py")
    }
    assert packages == set(re.findall(r"^\| `cfl_flower/(\w+)/`", PAGE, re.MULTILINE))

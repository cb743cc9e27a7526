"""In what two runs' configurations differ, and which of it affects their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cfl_flower.types import Json

MAY_DIFFER = frozenset(
    {
        "rounds",
        "resume",
        "workers",
        "gpus_per_worker",
        "engine",
        "output_dir",
        "data_dir",
        "system",
    }
)
"""Settings without effect on the numbers of the rounds that are done."""


def differences(
    one: Any, two: Any, key: str = ""
) -> Iterator[tuple[str, object, object]]:
    """Yield where two configurations differ: the full key, and the value in each.

    What is absent is None. Options of a group with another name differ in that name,
    which says more than what follows from it.

    Examples
    --------
    >>> old = {"seed": 1, "model": {"name": "mlp", "hidden": 64}}
    >>> list(differences(old, {"seed": 1, "model": {"name": "mlp", "hidden": 32}}))
    [('model.hidden', 64, 32)]
    >>> list(differences(old, {"seed": 1, "model": {"name": "cnn", "channels": 8}}))
    [('model.name', 'mlp', 'cnn')]
    """
    if not (isinstance(one, Mapping) and isinstance(two, Mapping)):
        if one != two:
            yield key, one, two
        return
    named = one.get("name") != two.get("name")
    for inner in ["name"] if named else {**one, **two}:
        path = f"{key}.{inner}" if key else inner
        yield from differences(one.get(inner), two.get(inner), path)


def effective_differences(
    saved: Mapping[str, Json], resolved: Mapping[str, Json]
) -> Iterator[tuple[str, object, object]]:
    """Yield the `differences` that affect the numbers of finished rounds."""
    for difference in differences(saved, resolved):
        if difference[0].partition(".")[0] not in MAY_DIFFER:
            yield difference

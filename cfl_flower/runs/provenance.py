"""Which code made a run: `provenance.json` of its folder.

A list with an entry for each change of the code: the run began with the first entry's
code and went on with that of each further one ``after_round``.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from cfl_flower.environment.code_version import (
    VERSION,
    code_digest,
    commit,
    digest_of_files,
)
from cfl_flower.environment.files import write_atomically
from cfl_flower.environment.plugins import PACKAGES, targets
from cfl_flower.errors import intact
from cfl_flower.types import Json

PROVENANCE = "provenance.json"
"""File with the code that a run was made by."""

LIBRARIES = ("flwr", "ray", "torch", "numpy", "scikit-learn", "hydra-core")


@cache
def library_versions() -> dict[str, str]:
    """Return the versions that a run's numbers depend on, this project's first."""
    ours = {"cfl-flower": VERSION, "python": platform.python_version()}
    return ours | {name: version(name) for name in LIBRARIES}


def own_code(resolved: Mapping[str, Json]) -> dict[str, str]:
    """Return a digest of each package or module outside of this project.

    Those that the settings name, once their classes are imported. A package counts with
    all its modules; what it imports from elsewhere does not count.
    """
    names = {path.partition(".")[0] for path in targets(resolved)} - set(PACKAGES)
    digests = {}
    for name in sorted(names):
        path = getattr(sys.modules.get(name), "__file__", None)
        if path is None:
            continue
        file = Path(path)
        package = file.name == "__init__.py"
        files = sorted(file.parent.rglob("*.py")) if package else [file]
        digests[name] = digest_of_files(file.parent, files)
    return digests


def current_code(resolved: Mapping[str, Json]) -> dict[str, Json]:
    """Return what this process would make a run by."""
    return {
        "version": VERSION,
        "commit": commit(),
        "code": code_digest(),
        "own_code": own_code(resolved),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": library_versions(),
    }


def read_provenance(folder: Path) -> list[dict[str, Json]]:
    """Return the entries of `provenance.json`, if any, or raise `ConfigError`."""
    path = folder / PROVENANCE
    if not path.exists():
        return []
    remedy = "delete it to continue; the run then forgets which code it began with"
    with intact(path, remedy):
        entries = json.loads(path.read_text())
        return [{**each, "after_round": int(each["after_round"])} for each in entries]


def record_provenance(
    folder: Path, resolved: Mapping[str, Json], done: int
) -> str | None:
    """Write which code a run goes on with after ``done`` rounds.

    Returns a warning if that is other code than before.
    """
    entries = [each for each in read_provenance(folder) if each["after_round"] < done]
    now = current_code(resolved)
    changed: list[str] = []
    if entries:
        before = {key: entries[-1].get(key) for key in now}
        changed = changed_code(before, now)
        if before == now:
            return None
    entries.append({"after_round": done, **now})
    write_atomically(folder / PROVENANCE, json.dumps(entries, indent=2).encode())
    if not changed:
        return None
    return (
        f"{', '.join(changed)} changed since round {done}: the rounds from here on are "
        "of the new code, as summary.json says; use a new output_dir for a run of one "
        "code"
    )


def changed_code(before: Mapping[str, Json], now: Mapping[str, Json]) -> list[str]:
    """Return the names of the packages and modules whose code differs."""
    names = ["cfl-flower"] if before.get("code") != now["code"] else []
    old = before.get("own_code") or {}
    new = now["own_code"] or {}
    modules = sorted({*old, *new})
    return names + [name for name in modules if old.get(name) != new.get(name)]


def code_changes(folder: Path) -> list[int]:
    """Return the rounds after which a run went on with other code."""
    pairs = pairwise(read_provenance(folder))
    return [int(now["after_round"]) for old, now in pairs if changed_code(old, now)]

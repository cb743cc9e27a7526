"""What of a disturbed run differs from the same run undisturbed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path

from cfl_flower.runs.reading import read_rounds, read_tests
from cfl_flower.types import Json

TIMED = ("seconds",)
"""Columns of the wall clock, which no two runs share."""


def differences(
    reference: Path, folder: Path, ignored: Collection[str] = TIMED
) -> list[str]:
    """Return what differs between the folders of two finished runs, a line for each.

    Rounds and clients' rows are compared number by number, but for ``ignored`` columns,
    models as the arrays of the last checkpoints, byte by byte.
    """
    found = []
    for name, read in (("rounds.jsonl", read_rounds), ("clients.jsonl", read_tests)):
        found += _differing_rows(name, read(reference), read(folder), ignored)
    if saved_arrays(reference) != saved_arrays(folder):
        found.append("checkpoint: other models")
    return found


def _differing_rows(
    name: str,
    expected: Sequence[dict[str, Json]],
    got: Sequence[dict[str, Json]],
    ignored: Collection[str],
) -> list[str]:
    if len(expected) != len(got):
        return [f"{name}: {len(got)} rows instead of {len(expected)}"]
    for line, (row, other) in enumerate(zip(expected, got, strict=True), 1):
        keys = (row.keys() | other.keys()).difference(ignored)
        differing = sorted(key for key in keys if row.get(key) != other.get(key))
        if differing:
            return [f"{name}: line {line} differs in {', '.join(differing)}"]
    return []


def saved_arrays(folder: Path) -> list[str]:
    """Return the digests of the arrays of a run's last checkpoint."""
    files = (folder / "checkpoint").rglob("*.safetensors")
    return sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)


def lost_results(reference: Path, folder: Path) -> int:
    """Return how many more failures of clients a run has than another one."""
    counts = [
        sum(len(row["failures"]) for row in read_rounds(each))
        for each in (reference, folder)
    ]
    return max(0, counts[1] - counts[0])

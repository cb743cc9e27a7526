"""The lines of `rounds.jsonl` and `clients.jsonl`: how they are checked and read.

A run's folder may come from elsewhere, or from a disk that lost some of it: its lines
are checked before they are drawn and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypeAlias, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from cfl_flower.errors import intact
from cfl_flower.runs.record import ClientRow, Number, RoundRecord
from cfl_flower.types import CLASS_COUNTS, Failure, Json, is_client_id

STRICT = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

MEASURES = (
    *("balanced_accuracy", "macro_f1", "auc", "calibration"),
    *("worst_tenth", "validation_accuracy"),
)
"""What pages draw of a round beside the fields of its record."""

Tested = Annotated[int, Field(ge=0, le=2**53)]
"""A number of tested samples, whose ratios are numbers."""


def _line_of(kind: type, needed: Collection[str], **more: Any) -> Any:
    """Return what a line is that has the fields of a class, ``needed`` or not."""
    hints = get_type_hints(kind, include_extras=True) | more
    keys = {n: each if n in needed else NotRequired[each] for n, each in hints.items()}
    line = TypedDict(kind.__name__, keys)  # type: ignore[misc]
    line.__pydantic_config__ = STRICT  # type: ignore[attr-defined]
    return line


Check: TypeAlias = Callable[[Mapping[str, Json]], str]
"""Returns what is wrong with a line, if anything is."""


def _checker(kind: type, needed: Collection[str], **more: Any) -> Check:
    """Return the check of lines that have the fields of a class, as `_line_of` says."""
    adapter = TypeAdapter(_line_of(kind, needed, **more))

    def check(row: Mapping[str, Json]) -> str:
        try:
            adapter.validate_python(row)
        except ValidationError as error:
            found = error.errors()
            keys = [".".join(map(str, each["loc"])) for each in found]
            pairs = zip(keys, found, strict=True)
            if lacking := [key for key, each in pairs if each["type"] == "missing"]:
                return f"no {', '.join(lacking)}"
            return f"{keys[0]}: {found[0]['msg']}"
        odd = [key for key, value in row.items() if isinstance(value, dict)]
        if "client" in row and not is_client_id(row["client"]):
            odd.append("client")
        return f"{odd[0]} is no measure" if odd else ""

    return check


_COUNTS = _line_of(object, CLASS_COUNTS, **dict.fromkeys(CLASS_COUNTS, Tested))
_FAILURE = _line_of(Failure, ("client", "phase", "reason", "detail"))

check_round = _checker(
    RoundRecord,
    ("round", "accuracy", "cluster_sizes", "failures", "bytes_up", "bytes_down"),
    failures=list[_FAILURE],  # type: ignore[valid-type]
    **dict.fromkeys(MEASURES, Number),
)
check_client = _checker(
    ClientRow,
    ("round", "client", "cluster", "accuracy"),
    per_class=list[_COUNTS] | None,  # type: ignore[valid-type]
)


def read_rounds(folder: Path) -> list[dict[str, Json]]:
    """Read the `rounds.jsonl` of a run, as `read_lines` does; a line for each."""
    path = folder / "rounds.jsonl"
    rows = read_lines(path, check_round)
    with unbroken(path):
        for number, row in enumerate(rows, 1):
            if row["round"] != number:
                raise ValueError(f"line {number} is of round {row['round']}")
    return rows


def read_tests(folder: Path) -> list[dict[str, Json]]:
    """Read the `clients.jsonl` of a run, as `read_lines` does."""
    return read_lines(folder / "clients.jsonl", check_client)


def read_lines(path: Path, check: Check = lambda row: "") -> list[dict[str, Json]]:
    """Read a JSON-lines file without a torn last line, as kill -9 leaves it.

    ``check`` says what is wrong with a line, if anything is. Raises `ConfigError` for
    such a line, and if another one than the last is torn.
    """
    if not path.exists():
        return []
    rows = []
    with unbroken(path):
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            if not line.endswith("\n"):
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number} is torn") from error
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is no JSON object")
            if fault := check(row):
                raise ValueError(f"line {number} has {fault}")
            rows.append(row)
    return rows


def unbroken(path: Path) -> AbstractContextManager[None]:
    """Turn what a damaged file of a run makes its reader raise into a `ConfigError`."""
    return intact(path, f"repair it, or delete {path.parent} and repeat the run")

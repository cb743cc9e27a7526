"""The check of the lines of `rounds.jsonl` and `clients.jsonl`.

A run's folder may come from elsewhere, or from a disk that lost some of it: its lines
are checked before they are drawn and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, NotRequired, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

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


def _checker(line: type[Any]) -> Callable[[Mapping[str, Json]], str]:
    """Return the function that says what is wrong with a line, if anything is."""
    adapter = TypeAdapter(line)

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
    _line_of(
        RoundRecord,
        ("round", "accuracy", "cluster_sizes", "failures", "bytes_up", "bytes_down"),
        failures=list[_FAILURE],  # type: ignore[valid-type]
        **dict.fromkeys(MEASURES, Number),
    )
)
check_client = _checker(
    _line_of(
        ClientRow,
        ("round", "client", "cluster", "accuracy"),
        per_class=list[_COUNTS] | None,  # type: ignore[valid-type]
    )
)

"""The check of the lines of `rounds.jsonl` and `clients.jsonl`.

A run's folder may come from elsewhere, or from a disk that lost some of it: its lines
are checked before they are drawn and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from cfl_flower.types import Json, is_client_id

MOST_CLUSTERS = 2**20

STRICT = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

LARGEST = 1e30
"""Bound of all measures: more cannot be drawn."""

Number = Annotated[int | float, Field(ge=-LARGEST, le=LARGEST)] | None
Whole = Annotated[int, Field(ge=0)]


class StampedLine(TypedDict):
    """Any line."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    round: Annotated[int, Field(ge=1)]


class FailureLine(TypedDict):
    """A failure in a line of `rounds.jsonl`."""

    __pydantic_config__ = STRICT  # type: ignore[misc]
    client: int | str
    phase: str
    reason: str
    detail: str


class RoundLine(StampedLine):
    """A line of `rounds.jsonl`; the method's own measures are among its keys."""

    accuracy: Number
    cluster_sizes: list[Whole] | None
    failures: list[FailureLine]
    bytes_up: Whole
    bytes_down: Whole
    accuracy_mean: NotRequired[Number]
    loss: NotRequired[Number]
    num_clusters: NotRequired[Whole | None]
    drifted: NotRequired[Whole | None]
    moved: NotRequired[Whole | None]
    reclustered: NotRequired[bool | None]
    participants: NotRequired[Whole | None]
    client_epochs: NotRequired[Number]
    seconds: NotRequired[Number]
    virtual_seconds: NotRequired[Number]
    heterogeneity: NotRequired[Number]
    ari: NotRequired[Number]
    balanced_accuracy: NotRequired[Number]
    macro_f1: NotRequired[Number]
    auc: NotRequired[Number]
    calibration: NotRequired[Number]
    worst_tenth: NotRequired[Number]
    validation_accuracy: NotRequired[Number]


class ClientLine(StampedLine):
    """A line of `clients.jsonl`."""

    client: int | str
    cluster: Annotated[int, Field(lt=MOST_CLUSTERS)]
    accuracy: Number
    num_examples: NotRequired[Whole]
    personalised: NotRequired[Number]


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


check_stamp = _checker(StampedLine)
check_round = _checker(RoundLine)
check_client = _checker(ClientLine)

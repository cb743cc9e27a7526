"""The records of a round and of each client tested in it, and the check of their lines.

A run's folder may come from elsewhere, or from a disk that lost some of it: lines of
`rounds.jsonl` and `clients.jsonl` are checked before they are drawn and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, NotRequired

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from cfl_flower.errors import ConfigError
from cfl_flower.types import (
    EPOCH_DIGITS,
    EPOCHS,
    ClientId,
    Failure,
    Json,
    Result,
    is_client_id,
)


@dataclass
class RoundRecord:
    """One line of `rounds.jsonl`; what was not measured is None, never 0."""

    round: int
    accuracy: float | None = None
    """Correct / tested over all evaluated clients, each with the model it is served."""
    accuracy_mean: float | None = None
    """Mean over clients."""
    loss: float | None = None
    """Mean cross-entropy over all tested samples."""
    num_clusters: int | None = None
    """Clusters with members at the time of the test."""
    cluster_sizes: list[int] | None = None
    """The size of each model's cluster."""
    drifted: int | None = None
    """Clients that reported a changed representation after the test."""
    moved: int | None = None
    """Clients that drift moved to another cluster, effective from the next round on;
    in IFCA those who chose another one in training, effective in this round's test."""
    reclustered: bool | None = None
    """Effective from the next round on; at once if clients that joined before this
    round's training triggered it."""
    participants: int | None = None
    """Clients asked to train."""
    failures: list[Failure] = field(default_factory=list)
    bytes_up: int = 0
    """Models for training and representations."""
    bytes_down: int = 0
    """Likewise; models sent only for the test, the same for every method, are not
    counted."""
    client_epochs: float | None = 0.0
    """What clients computed, their tests apart: a training pass of a client over its
    samples is one, a forward pass a third. None if a client did not tell it."""
    seconds: float | None = None
    """Wall time since the end of the last round."""
    virtual_seconds: float | None = None
    """Time of the simulated devices: in each phase the slowest that is waited for."""
    heterogeneity: float | None = None
    """Mean client distance within clusters, on the data of the test."""
    ari: float | None = None
    """Adjusted Rand index of the clusters against the true concepts."""
    measures: dict[str, Json] = field(default_factory=dict)
    """What the strategy measures in addition."""

    def note_epochs(self, results: Iterable[Result]) -> None:
        """Add what clients computed for some results."""
        for result in results:
            told = result.telemetry.get(EPOCHS)
            if told is None or self.client_epochs is None:
                self.client_epochs = None
                return
            added = self.client_epochs + float(told)
            self.client_epochs = round(added, EPOCH_DIGITS)

    def row(self) -> dict[str, Json]:
        """Return the line as a mapping, with the strategy's measures among its keys."""
        row = asdict(self)
        if self.client_epochs is not None:
            row["client_epochs"] = round(self.client_epochs, 4)
        measures = row.pop("measures")
        return with_measures(plain_measures(row, "record"), measures)


@dataclass(frozen=True)
class ClientRow:
    """One line of `clients.jsonl`: a client that was evaluated in a round.

    ``personalised`` is the accuracy on its own test samples, where ``accuracy`` is on
    the whole test set (`partition.tests`). ``measures`` has the strategy's additions.
    """

    round: int
    client: ClientId
    cluster: int
    accuracy: float
    num_examples: int
    personalised: float | None = None
    measures: dict[str, Json] = field(default_factory=dict)

    def row(self) -> dict[str, Json]:
        """Return the line as a mapping, with the strategy's measures among its keys."""
        row = dict(vars(self))
        return with_measures(row, row.pop("measures"))


def with_measures(
    row: Mapping[str, object], measures: Mapping[str, object]
) -> dict[str, Json]:
    """Return a line with a method's measures, as JSON has them.

    Raises `ConfigError` for a measure with the name of another key.
    """
    for name in measures.keys() & row.keys():
        raise ConfigError(
            f"measures[{name!r}] is not allowed; use another name, because the engine "
            f"writes {name}"
        )
    return {**row, **plain_measures(measures)}


def plain_measures(
    measures: Mapping[str, object], kind: str = "measures"
) -> dict[str, Json]:
    """Return what a method measured as JSON has it: numpy's numbers as Python's.

    Raises `TypeError`, which names the measure, for a value that JSON cannot hold, and
    for NaN or infinity.
    """
    found: dict[str, Json] = {}
    for name, value in measures.items():
        plain = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
        try:
            json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{kind}[{name!r}]={value!r} cannot be written to rounds.jsonl "
                f"({error}); use finite numbers, texts, lists and mappings, or None"
            ) from error
        found[name] = plain
    return found


def client_epochs(rounds: Sequence[Mapping[str, Json]]) -> float | None:
    """Return what clients computed in some rounds; None if a round does not say.

    Examples
    --------
    >>> client_epochs([{"client_epochs": 1.5}, {"client_epochs": 20.0}])
    21.5
    """
    spent = [row.get("client_epochs") for row in rounds]
    if None in spent:
        return None
    return round(float(sum(spent)), 4)  # type: ignore[arg-type]


def device_seconds(
    rounds: Sequence[Mapping[str, Json]], last: int | None = None
) -> float | None:
    """Return the simulated device time up to the end of a round.

    None if ``last`` is None, or a round up to it was not timed.

    Examples
    --------
    >>> times = [{"round": i, "virtual_seconds": 2.0 * i} for i in (1, 2, 3)]
    >>> device_seconds(times, 2)
    6.0
    """
    if last is None:
        return None
    spent = [row.get("virtual_seconds") for row in rounds if row["round"] <= last]
    return None if None in spent else float(sum(spent))  # type: ignore[arg-type]


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

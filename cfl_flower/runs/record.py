"""The records of a round and of each client tested in it, and their sums."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field

from cfl_flower.errors import ConfigError
from cfl_flower.types import (
    EPOCH_DIGITS,
    EPOCHS,
    ClientId,
    Failure,
    Json,
    Result,
)

MOST_CLUSTERS = 2**20

LARGEST = 1e30
"""Bound of all measures: more cannot be drawn."""

Bounded = Annotated[int | float, Field(ge=-LARGEST, le=LARGEST)]
Number = Bounded | None
Whole = Annotated[int, Field(ge=0)]

RunLines: TypeAlias = Sequence[Mapping[str, Json]]
"""Lines of `rounds.jsonl` or `clients.jsonl`."""


@dataclass
class RoundRecord:
    """One line of `rounds.jsonl`; what was not measured is None, never 0."""

    round: Annotated[int, Field(ge=1)]
    accuracy: Number = None
    """Correct / tested over all evaluated clients, each with the model it is served."""
    accuracy_mean: Number = None
    """Mean over clients."""
    loss: Number = None
    """Mean cross-entropy over all tested samples."""
    num_clusters: Whole | None = None
    """Clusters with members at the time of the test."""
    cluster_sizes: list[Whole] | None = None
    """The size of each model's cluster."""
    drifted: Whole | None = None
    """Clients that reported a changed representation after the test."""
    moved: Whole | None = None
    """Clients that drift moved to another cluster, effective from the next round on;
    in IFCA those who chose another one in training, effective in this round's test."""
    reclustered: bool | None = None
    """Effective from the next round on; at once if clients that joined before this
    round's training triggered it."""
    participants: Whole | None = None
    """Clients asked to train."""
    failures: list[Failure] = field(default_factory=list)
    bytes_up: Whole = 0
    """Models for training and representations."""
    bytes_down: Whole = 0
    """Likewise; models sent only for the test, the same for every method, are not
    counted."""
    client_epochs: Number = 0.0
    """What clients computed, their tests apart: a training pass of a client over its
    samples is one, a forward pass a third. None if a client did not tell it."""
    seconds: Number = None
    """Wall time since the end of the last round."""
    virtual_seconds: Number = None
    """Time of the simulated devices: in each phase the slowest that is waited for."""
    heterogeneity: Number = None
    """Mean client distance within clusters, on the data of the test."""
    ari: Number = None
    """Adjusted Rand index of the clusters against the true concepts."""
    measures: dict[str, Json] = field(default_factory=dict)
    """Additional measures of the strategy."""

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

    round: Annotated[int, Field(ge=1)]
    client: ClientId
    cluster: Annotated[int, Field(lt=MOST_CLUSTERS)]
    accuracy: Bounded
    num_examples: Whole
    personalised: Number = None
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
        fault = f"measures[{name!r}] is not allowed"
        remedy = f"use another name, because the engine writes {name}"
        raise ConfigError(f"{fault}; {remedy}")
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


def client_epochs(rounds: RunLines) -> float | None:
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


def device_seconds(rounds: RunLines, last: int | None = None) -> float | None:
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

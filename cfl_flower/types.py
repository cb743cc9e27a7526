"""The few shapes of data that every room speaks of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

ClientId: TypeAlias = int | str
"""A client's stable identity: a number in simulation, a name on a real device."""

Vector: TypeAlias = NDArray[np.float32]
"""A model as one flat float32 vector of d numbers (`models.FlatModel.vector`)."""

FloatArray: TypeAlias = NDArray[np.floating[Any]]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

Scalar: TypeAlias = bool | int | float | str | bytes
Json: TypeAlias = Any
"""Whatever `json` can write."""

Config: TypeAlias = dict[str, Any]
"""A task's config, from the server."""
Metrics: TypeAlias = dict[str, Scalar]
"""What a client reports beside arrays."""
Reply: TypeAlias = tuple[list[Vector], int, Metrics]
"""Arrays, the number of samples, and metrics: what Flower's `fit` returns."""
Evaluated: TypeAlias = tuple[float, int, Metrics]
"""The loss, the number of tested samples, and metrics: what `evaluate` returns."""

Counted = Literal["balanced_accuracy", "macro_f1", "auc", "calibration", "per_class"]
"""Measures of a test that follow from its counts (`learning.outcomes`)."""

CLASS_COUNTS = ("support", "predicted", "correct")
"""What `per_class` has of each class: its test samples, the predictions that name it,
and those of them that are right."""


def client_order(client: ClientId) -> tuple[bool, Any]:
    """Sort key of client ids: numbers first, by value, then names."""
    return isinstance(client, str), client


Version: TypeAlias = tuple[int, int]
"""Array of a reply, and the plan's model of which it is a new version."""


@dataclass(frozen=True)
class Task:
    """What one client is asked to do in one phase."""

    client: ClientId
    """Client that is asked."""
    models: tuple[int, ...] = ()
    """The plan's models that the client receives, in the order of its ``parameters``;
    empty when it needs none."""
    config: dict[str, Scalar] = field(default_factory=dict)
    """Entries of this client's config that differ from the plan's common one."""
    round: int | None = None
    """The round whose data it means, if clients have each their own."""


@dataclass(frozen=True)
class SumSpec:
    """That the results of a phase are added up, and never held one by one.

    A worker adds up what its virtual clients send (`communication.partial_sums`) and
    leaves out what is not valid: a method's `read_result` comes too late for arrays.
    """

    bases: tuple[int, ...]
    """Place in the task's ``models`` of the one that each array of a reply is a new
    version of. Versions of one model are added up."""
    by_samples: bool
    """Results weigh as many as their samples, or all alike."""
    masked: bool = False
    """Whether devices hide theirs, so that only sums can be read."""
    most: int = 2**40
    """Largest weight of a result: `strategy.weight_cap`."""

    def weigh(self, samples: int) -> int:
        """Return what a result of so many samples weighs."""
        return min(samples, self.most) if self.by_samples else 1


@dataclass(frozen=True)
class Plan:
    """The tasks of one phase and the models they share."""

    tasks: list[Task]
    """The tasks, at most one for each client."""
    models: list[Vector] = field(default_factory=list)
    """Each distinct model once, whatever the number of clients that receive it."""
    config: dict[str, Scalar] = field(default_factory=dict)
    """Common to all tasks."""
    reply: tuple[int, ...] = ()
    """The length of every array that a valid result carries."""
    sum_spec: SumSpec | None = None
    """Rule by which results are added up; None if they come one by one."""
    keep_from: int = 0
    """The first round of which clients still need what they remember."""
    whole: Plan | None = field(default=None, repr=False, compare=False)
    """The plan of which this is a part."""

    def __post_init__(self) -> None:
        # A method that appends to its plan's models would change its own state's list,
        # and each look at a row of a matrix makes another array.
        object.__setattr__(self, "models", [*self.models])

    @cached_property
    def sharers(self) -> Counter[int]:
        """How many tasks, of the whole plan, send each model."""
        if self.whole is not None:
            return self.whole.sharers
        return Counter(index for task in self.tasks for index in task.models)

    def part(self, tasks: list[Task]) -> Plan:
        """Return a plan of some of the tasks, whose models have as many sharers."""
        return replace(self, tasks=tasks, whole=self)


@dataclass(frozen=True)
class Result:
    """A client's valid answer to a task."""

    client: ClientId
    """Client that answered."""
    num_examples: int
    """Samples trained on, tested, or held by a client that is new; else 0."""
    arrays: list[Vector] = field(default_factory=list)
    """Arrays of the answer: for plain training, the trained model."""
    loss: float | None = None
    """The mean cross-entropy of a test; None in other phases."""
    metrics: dict[str, Scalar] = field(default_factory=dict)
    """Metrics of the method's client; bytes are float32 representations."""
    report: Any = None
    """Report that the method has read from the metrics, once (`read_result`)."""
    telemetry: dict[str, Scalar] = field(default_factory=dict)
    """Measures that the client app adds for the engine: some of `TELEMETRY`."""


@dataclass(frozen=True)
class Failure:
    """A task without a valid result."""

    client: ClientId
    """Client whose result is missing."""
    phase: str
    """``query``, ``train`` or ``evaluate``."""
    reason: str
    """One word: ``raised``, ``timeout``, ``missing``, ``non-finite``, ``shape``,
    ``count``, ``range``, ``representation``, ``oversized``, ``replayed``, ``foreign``,
    ``identity``, ``refused``, ``incomplete``, ``stamp``, ``test``, ``node`` or
    ``other``."""
    detail: str
    """One line for a person."""


SAID = (
    *("raised", "timeout", "refused", "identity", "shape", "count", "range"),
    *("non-finite", "representation", "node"),
)
"""Reasons of a client's failure that a node may give itself."""

OTHER = "other"
"""The reason of one that says anything else."""

PASSES = "passes"
"""The metric in which a client app reports what it computed: `FlatModel.passes`."""

EPOCHS = "epochs"
"""The same as epochs: how often it could have trained on its samples for that."""

EPOCH_DIGITS = 9
"""To which it is rounded, so that a sum does not depend on the order."""

START_LOSS = "start_loss"
START_RMS = "start_rms"
START_LOSSES = (START_LOSS, START_RMS)
"""Measures of the received model that a plan's config can ask trained clients for: the
mean loss of their samples, and the root of its mean square."""

REPORT = "representation"
CHANGED = "changed"
"""Metrics in which clients report what represents their data, and whether these change
in the next round."""

UPDATE_LENGTHS = "update_lengths"
"""The metric in which a client tells how long its updates were before ``clip``."""

OUTCOMES = "outcomes"
"""The metric in which a tested client sends the counts of its test, if it is asked."""

FURTHER_TESTS = ("own", "validation", "unlabelled")
"""Tests beside that of all samples, each with keys of what was correct, and tested."""
LEFT_OUT = b""
"""Placeholder of counts that a device's own rule leaves out."""

TELEMETRY = (PASSES, EPOCHS, *START_LOSSES, UPDATE_LENGTHS, OUTCOMES)
"""Metrics that the engine asks for; no method reads them."""


@dataclass(frozen=True)
class Trace:
    """How a simulated client came to raise an exception."""

    kind: str
    """The class of the exception, and the file and line that raised it."""
    text: str
    """Python's traceback."""


@dataclass
class Answer:
    """What a client app sends back for one task.

    ``error`` is (reason, detail) when the client had no result. A device sends no
    ``trace``: it may hold parts of its data.
    """

    client: ClientId
    arrays: Sequence[Vector] = ()
    num_examples: int = 0
    loss: float | None = None
    metrics: dict[str, Scalar] = field(default_factory=dict)
    error: tuple[str, str] | None = None
    trace: Trace | None = None


NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
"""Client ids name folders, rows and log lines."""


def is_client_id(value: object) -> bool:
    """Tell whether a value can be a client id: a number, or a short plain name.

    Examples
    --------
    >>> [is_client_id(value) for value in (3, "site-a", "../a", -1, True, None)]
    [True, True, False, False, False, False]
    """
    if isinstance(value, str):
        return NAME.fullmatch(value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

"""A method without rounds: its settings, and what survives an upload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cfl_flower.client.upload_policy import UploadPolicy
from cfl_flower.settings import require, settings
from cfl_flower.state import ClusteredState, StrategySettings, no_clusters
from cfl_flower.types import (
    ClientId,
    Failure,
    FloatArray,
    IntArray,
    Result,
    Vector,
)


@settings("strategy")
class AsynchronousSettings(StrategySettings):
    """The settings of every method without rounds."""

    client: str = "clients.families.asynchronous.AsynchronousClient"
    """Dotted path of the NumPyClient that does this method's tasks."""
    arrival: Literal["devices", "shuffled"] = "devices"
    """Time of simulated clients' uploads: when their device (group `devices`) has
    received, trained and sent; or once in every unit of time, at a moment drawn
    anew."""
    stream: Literal["rounds", "cycles"] = "rounds"
    """Clock of the stream of data: the server's rounds, or each client's own uploads,
    so that it holds other data after each."""
    policy: UploadPolicy = field(default_factory=UploadPolicy)
    """Times at which real devices upload."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # A fast device has more cycles than the run has rounds: its data would freeze.
        ok = self.stream == "rounds" or self.arrival == "shuffled"
        allowed = "rounds, or cycles with strategy.arrival=shuffled"
        require(ok, "strategy.stream", self.stream, allowed)


@dataclass
class AsynchronousState(ClusteredState):
    """The state between two uploads; n clients are rows."""

    epoch: int = 0
    """t, the uploads taken in."""
    now: float = 0.0
    """Seconds of the virtual clock, or of the real one."""
    served: list[Vector] = field(default_factory=list)
    """The model that each client uses for its predictions."""
    stamps: IntArray = field(default_factory=no_clusters)
    """tau, the epoch of each client's last download, shape (n,)."""
    cycles: IntArray = field(default_factory=no_clusters)
    """The tasks that each client was given, shape (n,)."""
    rounds: IntArray = field(default_factory=no_clusters)
    """The round of whose data its present task is, shape (n,)."""
    due: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Arrival time of each client's upload, shape (n,)."""
    samples: IntArray = field(default_factory=no_clusters)
    """Number of samples of each client's last training, shape (n,)."""
    lengths: FloatArray = field(default_factory=lambda: np.zeros(0))
    """The length of its last update, shape (n,); NaN before the first."""
    answers: dict[ClientId, Result | Failure] = field(default_factory=dict)
    """Answers that have come, by client: a Result or a Failure."""

    def join(self, newcomers: Sequence[Result], clusters: IntArray) -> None:
        """Append newcomers, whose first task is due in the next unit of time."""
        super().join(newcomers, clusters)
        count = len(newcomers)
        none = np.zeros(count, np.int64)
        samples = np.array([each.num_examples for each in newcomers], np.int64)
        self.stamps = np.append(self.stamps, np.full(count, self.epoch))
        self.cycles = np.append(self.cycles, none)
        self.rounds = np.append(self.rounds, none)
        self.due = np.append(self.due, np.full(count, np.ceil(self.now)))
        self.samples = np.append(self.samples, samples)
        self.lengths = np.append(self.lengths, np.full(count, np.nan))


@dataclass(frozen=True)
class Exchange:
    """What passes between an asynchronous method's server and client, beside a model.

    The model is the one that the client trained.
    """

    mixtures: bool = False
    """Clients receive all K models, and upload their shares of them with the model."""
    free: bool = False
    """No bytes are counted: nothing is communicated where this is no simulation."""

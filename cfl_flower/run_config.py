"""What a run is: the typed and checked settings that every room may read.

`config.compose` builds them. This module imports no other room while it runs, so that a
command which only asks for a setting starts at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cfl_flower.settings import Count, Natural, NonNegative, require, settings
from cfl_flower.types import Counted, Json

if TYPE_CHECKING:
    from cfl_flower.data.reading.pool import Dataset
    from cfl_flower.data.worlds.drift import Drift
    from cfl_flower.data.worlds.partition import Partition
    from cfl_flower.data.worlds.timeline import Timeline
    from cfl_flower.learning.aggregation import Average, FedYogi
    from cfl_flower.learning.selection import NearestToCentre, Oort, RandomSelection
    from cfl_flower.models import ModelSettings
    from cfl_flower.privacy.settings import ModelPrivacy


@settings("")
class Basics:
    """The top-level settings; `conf/config.yaml` has their defaults."""

    rounds: Count
    """Communication rounds."""
    clients: Count
    """Virtual clients, or devices to wait for."""
    participants: Count
    """M, clients that train in a round, over all clusters."""
    clusters: Count
    """K, for methods with a fixed number of clusters."""
    seed: Natural
    """Seed of all random draws of the run."""
    workers: Count | Literal["auto"]
    """Worker processes; auto is one for each core; no effect on the numbers."""
    gpus_per_worker: NonNegative | Literal["auto"]
    """GPUs of each worker; auto is one for each GPU of this machine; a fraction shares
    one."""
    engine: Literal["auto", "processes", "inprocess", "ray"]
    """Carrier of messages; no effect on the numbers. Auto is ray where RAY_ADDRESS
    names a cluster, inprocess for a single GPU, else processes of this machine."""
    output_dir: str | None
    """The run's folder; null for `outputs/<date>/<time>-<strategy>-<drift>-s<seed>`."""
    data_dir: str | None
    """Folder of datasets; null for `~/.cache/cfl-flower`."""
    resume: bool
    """Continue from `output_dir`/checkpoint."""
    metrics: list[Counted | Literal["worst_tenth", "forgetting"]]
    """Measures beside the accuracy of each test."""
    evaluation: Literal["round", "prequential"]
    """Whether a round's test is on its own data, or on those of the next round, before
    anyone trains on them (test, then train)."""

    def __post_init__(self) -> None:
        ok = self.participants <= self.clients
        allowed = f"at most the {self.clients} clients, or raise clients"
        require(ok, "participants", self.participants, allowed)


@settings("system")
class System:
    """Execution of a run, without effect on its numbers."""

    task_timeout: NonNegative = 120.0
    """Seconds that one client's task may take; 0 for no limit."""
    message_timeout: NonNegative = 3600.0
    """Seconds after which a node without an answer is given up."""
    evaluate_every: Count = 1
    """Rounds between tests of all clients (the last round is always tested)."""
    checkpoint_every: Count = 1
    """Rounds between checkpoints."""
    checkpoint_best: str | None = None
    """Measure by which the best checkpoint is kept beside the last, in the run's folder
    `checkpoint.best`; by `validation_accuracy` for what tests shall judge."""
    diagnose: bool = False
    """Whether to say in what clients differ before the first round, by sums that each
    sends."""


@dataclass(frozen=True)
class RunConfig(Basics):
    """The configuration of one run, typed and checked; its paths are absolute.

    Groups are frozen dataclasses with the behaviour that they configure.
    """

    output_dir: str
    data_dir: str
    strategy: Any
    """The `Settings` of the method."""
    dataset: Dataset
    partition: Partition
    drift: Drift
    model: ModelSettings
    selection: RandomSelection | NearestToCentre | Oort
    server_optimizer: Average | FedYogi
    devices: Any
    """`engine.simulated_devices.Devices`."""
    system: System
    logger: Any
    """A kind of logger of `runs.loggers`."""
    faults: Any
    """`client.faults.Faults`."""
    privacy: ModelPrivacy
    timeline: Timeline
    """The data of every simulated client, and its true concept."""
    names: dict[str, str]
    """The chosen option of each group."""
    resolved: dict[str, Json]
    """All settings as plain data, as in `config.yaml` and sent to clients."""
    overrides: list[str]
    """The user's overrides, as given."""

    @property
    def cap_of_tests(self) -> float | None:
        """For how many times the median samples a test counts at most, or None."""
        robust: str = self.strategy.robust
        cap: float | None = self.strategy.weight_cap
        return None if robust == "none" else cap

    def require_option(self, condition: bool, group: str, allowed: str) -> None:
        """Raise the one-line error of the option that is chosen of a group."""
        require(condition, group, self.names[group], allowed)

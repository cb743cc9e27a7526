"""What is noted of a round, and of each client that was tested in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from cfl_flower.types import ClientId, Failure, Json


@dataclass
class RoundRecord:
    """One line of `rounds.jsonl`. What was not measured is None, never 0.

    Attributes
    ----------
    accuracy : float
        Correct / tested over all evaluated clients, each with the model it is served.
    accuracy_mean : float
        Mean over clients.
    loss : float
        Mean cross-entropy over all tested samples.
    num_clusters, cluster_sizes : int, list of int
        Clusters with members at the time of the test; the size of each model's cluster.
    drifted : int
        Clients that reported a changed representation after the test.
    moved, reclustered : int, bool
        What that led to, in force from the next round on. Clients that joined before
        this round's training can trigger a re-clustering, too, which is in force.
    participants : int
        Clients asked to train.
    failures : list of Failure
    bytes_up, bytes_down : int
        Models for training and representations. Models sent only for the test are a
        measurement, the same for every method, and are not counted.
    seconds, virtual_seconds : float
        Wall time since the end of the last round, with everything in between; time of
        the simulated devices (`devices`), of which the slowest that is waited for
        counts in each phase: questions, training, reports.
    heterogeneity : float
        Mean client distance within clusters, on the data of the test.
    ari : float
        Adjusted Rand index of the clusters against the true concepts.
    measures : dict
        What the strategy measures beside, under names of its own.
    """

    round: int
    accuracy: float | None = None
    accuracy_mean: float | None = None
    loss: float | None = None
    num_clusters: int | None = None
    cluster_sizes: list[int] | None = None
    drifted: int | None = None
    moved: int | None = None
    reclustered: bool | None = None
    participants: int | None = None
    failures: list[Failure] = field(default_factory=list)
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float | None = None
    virtual_seconds: float | None = None
    heterogeneity: float | None = None
    ari: float | None = None
    measures: dict[str, Json] = field(default_factory=dict)

    def row(self) -> dict[str, Json]:
        """Return the line, with the strategy's own measures as keys like the others."""
        row = asdict(self)
        measures: dict[str, Json] = row.pop("measures")
        return row | measures


@dataclass(frozen=True)
class ClientRow:
    """One line of `clients.jsonl`: a client that was evaluated in a round.

    ``personalised`` is the accuracy on its own test samples, where ``accuracy`` is on
    the whole test set (`partition.tests`). ``measures`` is what the strategy adds.
    """

    round: int
    client: ClientId
    cluster: int
    accuracy: float
    num_examples: int
    personalised: float | None = None
    measures: dict[str, Json] = field(default_factory=dict)

    def row(self) -> dict[str, Json]:
        """Return the line, with the strategy's own measures as keys like the others."""
        row = dict(vars(self))
        measures: dict[str, Json] = row.pop("measures")
        return row | measures


def device_seconds(
    rounds: Sequence[Mapping[str, Json]], last: int | None = None
) -> float | None:
    """Return the time of the simulated devices up to the end of a round.

    None without that round, or if a round before it was not timed.

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

"""The records of a round and of each client that was tested in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from cfl_flower.types import ClientId, Failure, Json


@dataclass
class RoundRecord:
    """One line of `rounds.jsonl`; what was not measured is None, never 0.

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
        The consequences of that, effective from the next round on. Clients that joined
        before this round's training can trigger a re-clustering, too, effective now.
    participants : int
        Clients asked to train.
    bytes_up, bytes_down : int
        Models for training and representations; models sent only for the test, the
        same for every method, are not counted.
    seconds, virtual_seconds : float
        Wall time since the end of the last round; time of the simulated devices
        (`devices`), in each phase that of the slowest device that is waited for.
    heterogeneity : float
        Mean client distance within clusters, on the data of the test.
    ari : float
        Adjusted Rand index of the clusters against the true concepts.
    measures : dict
        What the strategy measures in addition.
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
        """Return the line as a mapping, with the strategy's measures among its keys."""
        row = asdict(self)
        measures: dict[str, Json] = row.pop("measures")
        return row | measures


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
        measures: dict[str, Json] = row.pop("measures")
        return row | measures


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

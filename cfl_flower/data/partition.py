"""Who holds which labels, and which samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cfl_flower.errors import ConfigError
from cfl_flower.settings import require, require_fraction
from cfl_flower.types import FloatArray, IntArray


@dataclass(frozen=True)
class Layout:
    """The label distributions that exist, and which client follows which.

    Attributes
    ----------
    distributions : array of shape (concepts, L)
    concepts : int array of shape (clients,)
        The true concept of each client: a row of ``distributions``.
    """

    distributions: FloatArray
    concepts: IntArray

    @property
    def per_client(self) -> FloatArray:
        """The label distribution of each client, shape (clients, L)."""
        rows: FloatArray = self.distributions[self.concepts]
        return rows


class Partition(Protocol):
    """Settings that lay out label distributions over clients."""

    @property
    def samples(self) -> int | None:
        """Training samples per client, or None to deal each sample once."""

    @property
    def test_samples(self) -> int | None:
        """Test samples per client, or None to deal each sample once."""

    def layout(
        self, clients: int, classes: int, avoid: list[Layout], rng: np.random.Generator
    ) -> Layout:
        """Draw a layout with no label distribution of the layouts to avoid."""


@dataclass(frozen=True)
class LabelGroups:
    """Labels are split into disjoint groups; a client holds mostly one group's labels.

    Attributes
    ----------
    groups : int
        Number of label groups, which are the true concepts.
    purity : float
        Share of a client's distribution on its own group; the rest is spread over all
        labels.
    samples, test_samples : int or None
        Samples per client, drawn with replacement. None deals every sample to exactly
        one client; where only some clients change later, these draw as many as they
        had, with replacement from all samples.
    """

    groups: int = 5
    purity: float = 0.95
    samples: int | None = None
    test_samples: int | None = None

    def __post_init__(self) -> None:
        require(self.groups >= 1, "partition.groups", self.groups, "at least 1")
        require_fraction("partition.purity", self.purity)
        for name in ("samples", "test_samples"):
            value = getattr(self, name)
            allowed = "null or at least 1"
            require(value is None or value >= 1, f"partition.{name}", value, allowed)

    def layout(
        self, clients: int, classes: int, avoid: list[Layout], rng: np.random.Generator
    ) -> Layout:
        """Split the labels into groups that never existed, and spread the clients.

        A client's new group does not depend on its old one.

        Raises
        ------
        ConfigError
            If there are more groups than labels, or no new groups.
        """
        require(
            self.groups <= classes,
            "partition.groups",
            self.groups,
            f"at most the {classes} labels of the dataset",
        )
        known = {row.tobytes() for old in avoid for row in old.distributions}
        for _ in range(1000):
            rows = self._distributions(classes, rng)
            if not any(row.tobytes() in known for row in rows):
                concepts = rng.permutation(np.arange(clients) % self.groups)
                return Layout(rows, concepts)
        raise ConfigError(
            f"partition.groups={self.groups} leaves none of the {classes} labels' "
            f"groups that did not exist before for event {len(avoid)} of drift.rounds; "
            "use other groups, fewer events or drift=none"
        )

    def _distributions(self, classes: int, rng: np.random.Generator) -> FloatArray:
        group = rng.permutation(np.arange(classes) % self.groups)
        own = (group == np.arange(self.groups)[:, None]).astype(float)
        own /= own.sum(axis=1, keepdims=True)
        rows: FloatArray = self.purity * own + (1 - self.purity) / classes
        return rows


def deal_once(
    labels: IntArray, demand: FloatArray, rng: np.random.Generator
) -> list[IntArray]:
    """Deal every sample to exactly one client, label by label.

    Parameters
    ----------
    labels : int array of shape (n,)
    demand : array of shape (clients, L)
        A label's samples are shared in proportion to its column, evenly if that is 0.

    Returns
    -------
    list of int arrays
        Disjoint, together all n indices.
    """
    hands: list[list[IntArray]] = [[] for _ in demand]
    for label in range(demand.shape[1]):
        shuffled = rng.permutation(np.flatnonzero(labels == label))
        # Clients in a new order for each label: roundings favour nobody twice.
        order = rng.permutation(len(demand))
        wanted = demand[order, label]
        shares = np.cumsum(wanted if wanted.any() else np.ones(len(demand)))
        cuts = np.rint(shares / shares[-1] * len(shuffled)).astype(int)
        for client, part in zip(order, np.split(shuffled, cuts[:-1]), strict=True):
            hands[client].append(part)
    return [np.sort(np.concatenate(hand)) for hand in hands]


def draw(
    labels: IntArray, demand: FloatArray, counts: IntArray, rng: np.random.Generator
) -> list[IntArray]:
    """Draw samples for each client with replacement, following its distribution.

    Parameters
    ----------
    labels : int array of shape (n,)
        Labels that nobody holds a sample of are drawn by nobody.
    demand : array of shape (clients, L)
    counts : int array of shape (clients,)
        Samples to draw for each client.
    """
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=demand.shape[1])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    present = demand * (sizes > 0)
    present[~present.any(axis=1)] = sizes > 0
    cumulative = np.cumsum(present, axis=1)
    uniform = rng.random((len(demand), counts.max(initial=0))) * cumulative[:, -1:]
    wanted = (uniform[:, :, None] >= cumulative[:, None, :-1]).sum(axis=2)
    offsets = (rng.random(wanted.shape) * sizes[wanted]).astype(np.int64)
    drawn = order[starts[wanted] + offsets]
    return [np.sort(row[:n]) for row, n in zip(drawn, counts, strict=True)]

"""FedDAG with one encoder: clusters once, by samples of each label and by updates.

Pramanik et al., "FedDAG: Clustered Federated Learning via Global Data and Gradient
Integration for Heterogeneous Environments" (ICLR 2026); this is its FedDAG*, section 3.
Before the first round each client sends principal vectors of the samples of each label,
as in PACFL, how many they are, and some entries of the update that local training
gives. The server mixes the angles of both with a weight for each client, merges clients
up to the threshold whose clusters are tight, few and not small, and each cluster goes
on by FedAvg.

Server keeps: what each client sent, and its weight. Leaves the device: the trained
model (d floats); once, p L z floats of vectors, L counts and k of d entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from cfl_flower.clustering.algorithms import grown
from cfl_flower.clustering.similarity import chosen_entries, cosine_matrix
from cfl_flower.clustering.subspaces import class_angles, of_labels
from cfl_flower.errors import InvalidResultError
from cfl_flower.settings import Count, Fraction, NonNegative, settings
from cfl_flower.state import StrategySettings
from cfl_flower.types import ClientId, FloatArray, IntArray, Plan, Result
from strategies.pacfl import PACFL, PACFLState, merge_clients

THRESHOLDS = np.arange(20, 0, -1) / 20
"""The thresholds that are tried, from 1.00 to 0.05: section 5, experiment 2."""

PENALTY = 0.01
"""lambda, the weight of the penalty for small clusters; gamma and tau are 1. The paper
does not say them; they are its code's."""

LARGEST = 50.0
"""By how many clients a cluster is too small at most, so that exp is finite."""


@settings("strategy")
class FedDAGSettings(StrategySettings):
    """FedDAG's settings."""

    idle_unless = StrategySettings.idle_unless | {"slack": "threshold=none"}

    by_label: ClassVar[bool] = True
    client: str = "clients.feddag.FedDAGClient"
    vectors: Count = 3
    """p, principal vectors of the samples of each label."""
    warmup: Count = 2
    """t_g, trainings of a client by itself, each as long as a round's. The update of
    the last is compared."""
    share: Annotated[float, Field(gt=0, le=1)] = 0.02
    """Share of an update's entries that is sent: the same ones of all clients."""
    spread: Fraction = 0.6
    """delta: an angle between samples of a label counts from 1 - delta times, if two
    clients have as many, to 1 + delta times."""
    threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    """alpha, the distance from which clusters are not merged; null to search for it."""
    slack: NonNegative = 0.25
    """What a clustering's loss may be above the least one: the fewest clusters of these
    are taken."""


@dataclass
class FedDAGState(PACFLState):
    """FedDAG's state."""

    counts: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    """How many samples of each label each client has, shape (n, L)."""
    updates: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    """Entries of each client's update, shape (n, k)."""
    weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    """w, how much a client's update counts beside its samples, shape (n,)."""
    threshold: float = 0.0
    """alpha, once it is known."""


def scaled(gaps: FloatArray) -> FloatArray:
    """Return distances of different clients, (n, n), in [0, 1] by the least and most.

    Examples
    --------
    >>> scaled(np.array([[0.0, 10, 20], [10, 0, 50], [20, 50, 0]])).tolist()
    [[0.0, 0.0, 0.25], [0.0, 0.0, 1.0], [0.25, 1.0, 0.0]]
    """
    others = gaps[~np.eye(len(gaps), dtype=bool)]
    low = others.min(initial=np.inf)
    span = others.max(initial=-np.inf) - low
    found = (gaps - low) / span if span > 0 else np.zeros_like(gaps)
    np.fill_diagonal(found, 0)
    return found


def fuse(updates: FloatArray, samples: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the distances A of n clients, (n, n), from those of both kinds: eq. 7.

    A pair has the weight of the client that comes first.
    """
    own = weights[:, None]
    upper = np.triu(own * updates + (1 - own) * samples, 1)
    return upper + upper.T


def entropy(
    weights: FloatArray, updates: FloatArray, samples: FloatArray
) -> tuple[float, FloatArray]:
    """Return n times the loss of eq. 8, and its gradient by the weights, (n,)."""
    fused = fuse(updates, samples, weights)
    logs = fused - np.log(np.exp(fused).sum(axis=1, keepdims=True))
    shares = np.exp(logs)
    rows = -(shares * logs).sum(axis=1)
    # By A_ij, which is A_ji.
    slopes = -shares * (logs + rows[:, None])
    pairs = np.triu((slopes + slopes.T) * (updates - samples), 1)
    return float(rows.sum()), pairs.sum(axis=1)


def learn_weights(
    updates: FloatArray, samples: FloatArray, known: FloatArray
) -> FloatArray:
    """Return the weights of n clients that minimise eq. 8; the m known ones stay."""
    from scipy.optimize import minimize

    free = len(updates) - len(known)
    bounds = [*zip(known, known, strict=True), *[(0.0, 1.0)] * free]
    start = np.append(known, np.full(free, 0.5))
    args = (updates, samples)
    return minimize(entropy, start, args, jac=True, bounds=bounds).x


def clustering_loss(fused: FloatArray, clusters: IntArray) -> float:
    """Return how loose and how small clusters are: eq. 9 and 10, at most 1."""
    members = np.equal.outer(np.arange(clusters.max() + 1), clusters).astype(float)
    sizes = members.sum(axis=1)
    loose = ((members @ fused) * members).sum(axis=1) / sizes**2
    short = np.clip(sizes.mean() - sizes.std() - sizes, 0, LARGEST)
    return min(1.0, float(loose.sum() + PENALTY * np.exp(short).mean()))


def first_of_fewest(
    losses: Sequence[float], counts: Sequence[int], slack: float
) -> int:
    """Return the first place of the fewest clusters with nearly the least loss.

    Algorithm 3, line 8: "with low score and relatively small Z".

    Examples
    --------
    >>> first_of_fewest([0.7, 0.3, 0.3, 0.1], [1, 4, 4, 10], 0.25)
    1
    """
    most = min(losses) + slack
    places = [place for place, loss in enumerate(losses) if loss <= most]
    return min(places, key=counts.__getitem__)


def choose_threshold(fused: FloatArray, slack: float) -> float:
    """Return the largest threshold that gives the clusters of Algorithm 3."""
    tried = [merge_clients(fused, threshold) for threshold in THRESHOLDS]
    losses = [clustering_loss(fused, clusters) for clusters in tried]
    counts = [int(clusters.max()) + 1 for clusters in tried]
    return float(THRESHOLDS[first_of_fewest(losses, counts, slack)])


class FedDAG(PACFL):
    """One clustering by samples and updates, then FedAvg in each cluster."""

    Settings = FedDAGSettings
    State = FedDAGState

    def hello(self, clients: Sequence[ClientId]) -> Plan:
        """Ask newcomers for their principal vectors, counts and updates."""
        plan = super().hello(clients)
        model = self.run.initial_model()
        entries = chosen_entries(len(model), self.settings.share, 0)
        classes = self.run.config.dataset.classes
        return replace(plan, reply=(*plan.reply, classes, len(entries)))

    def read_result(self, phase: str, result: Result) -> Result:
        """Read principal vectors, and counts that are those of all samples."""
        read = super().read_result(phase, result)
        if phase == "query":
            counts = result.arrays[1].astype(np.float64)
            whole = (counts >= 0).all() and not (counts % 1).any()
            if not whole or counts.sum() != result.num_examples:
                detail = "counts of labels that are not those of its samples"
                raise InvalidResultError("representation", detail)
        return read

    def note(self, newcomers: list[Result]) -> None:
        """Add what newcomers told to what all others did."""
        super().note(newcomers)
        state = self.state
        _, counts, updates = zip(*(each.arrays for each in newcomers), strict=True)
        state.counts = grown(state.counts, np.stack(counts, dtype=np.float64))
        state.updates = grown(state.updates, np.stack(updates, dtype=np.float64))

    def group(self) -> IntArray:
        """Return the group of everyone, anew; weights and threshold once known stay."""
        state = self.state
        settings = self.settings
        # Eq. 3: angles of updates; one of length 0 is at 90 degrees to all others.
        turned = np.degrees(np.arccos(cosine_matrix([*state.updates])))
        parts = of_labels(state.subspaces, settings.vectors)
        angles = class_angles(parts, state.counts, settings.spread)
        updates = scaled(turned)
        samples = scaled(angles)
        state.weights = learn_weights(updates, samples, state.weights)
        fused = fuse(updates, samples, state.weights)
        found = state.threshold or settings.threshold
        found = found or choose_threshold(fused, settings.slack)
        # Clients without a distance do not decide for all who come later.
        state.threshold = found if fused.any() else 0.0
        return merge_clients(fused, found)

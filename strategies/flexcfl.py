"""FlexCFL: groups by the directions of clients' updates, and migration under shift.

Duan et al., "Flexible Clustered Federated Learning for Client-Level Data Distribution
Shift" (TPDS 2022; Algorithms 2 and 3, eq. 3 to 9). Before the first round alpha * m
clients train from w_0, and their updates are grouped by EDC or MADC (Algorithm 3).
Everyone else compares its own update from w_0 with the groups' directions, and joins
the nearest (eq. 8). In each round (Algorithm 2) clients whose label counts shifted do
so again, on the device; participants train, groups are averaged, and then mixed.
FedGroup (Duan et al., ISPA 2021) is FlexCFL without migration: `strategy=fedgroup`.

Server keeps: m models and the m directions of the groups at their start. Leaves the
device: the update from w_0 (d floats, or its sketch) of alpha * m clients; the number
of a group; the model of a participant (d floats).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator
from pydantic import Field

from cfl_flower.clustering.algorithms import (
    complete_linkage,
    kmeans,
    number_by_appearance,
)
from cfl_flower.clustering.representations import digest
from cfl_flower.clustering.similarity import cosine_matrix, decomposed_cosines, madc
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import Disclosure
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.settings import Count, Natural, NonNegative, settings
from cfl_flower.state import no_clusters
from cfl_flower.types import (
    BoolArray,
    ClientId,
    IntArray,
    Plan,
    Result,
    Scalar,
    Task,
    Vector,
    client_order,
)
from clients.flexcfl import DIRECTIONS, PRETRAIN
from strategies.families.choosing import (
    CHOICE,
    ChoosingSettings,
    ChoosingState,
    ChoosingStrategy,
)


@settings("strategy")
class FlexCFLSettings(ChoosingSettings):
    """FlexCFL's settings."""

    idle_unless = ChoosingSettings.idle_unless | {"mixing_form": "mixing"}

    client: str = "clients.flexcfl.FlexCFLClient"
    migration: bool = True
    """Clients whose label counts have shifted do the cold start again (eq. 9)."""
    alpha: Annotated[float, Field(ge=1)] = 20.0
    """The group cold start takes alpha * m clients."""
    grouping: Literal["edc", "madc", "random"] = "edc"
    """Grouping of the clients in the group cold start. With `random`, the paper's
    ablation RCC, the updates of m random clients are the directions."""
    newcomers: Literal["cosine", "random"] = "cosine"
    """Choice of a group by all other clients. `random` is the paper's ablation RAC;
    clients that migrate later choose by cosine."""
    pretraining: Count = 50
    """Mini-batches of a cold start; the paper says an epoch."""
    sketch: Natural = 0
    """The dimension of the random projection of updates; 0 compares whole updates."""
    mixing: NonNegative = 0.0
    """eta_g, the rate of mixing between groups; 0, 0.1 and 5 in the paper."""
    mixing_form: Literal["convex", "sum"] = "convex"
    """The mean of all groups' models, as in the code; or the paper's sum (line 19)."""


@dataclass
class FlexCFLState(ChoosingState):
    """FlexCFL's state."""

    directions: list[Vector] = field(default_factory=list)
    """The direction of each group at its start, shape (d,), or (k,) if sketched."""
    holding: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    """Whether each client has received the directions, shape (n,)."""


def group_updates(
    updates: Sequence[Vector], count: int, grouping: str, rng: Generator
) -> tuple[IntArray, list[Vector]]:
    """Group n updates of shape (d,) in m groups: Algorithm 3, lines 7 to 16.

    Returns the group of each and the groups' directions, zero for an empty group.
    ``random``, with no more than m updates, makes each a group of its own.
    """
    if grouping == "random":
        groups = np.arange(len(updates))
    elif grouping == "madc":
        # Algorithm 3, lines 8 to 10, eq. 5 and 6.
        groups = complete_linkage(madc(cosine_matrix(updates)), count)
    else:
        # Algorithm 3, lines 11 to 13, eq. 7.
        groups = kmeans(decomposed_cosines(updates, count), count, rng)
    groups = number_by_appearance(groups)
    # Lines 14 to 16.
    return groups, mean_directions(updates, groups, count)


def mean_directions(
    updates: Sequence[Vector], groups: IntArray, count: int
) -> list[Vector]:
    """Return the plain mean update of each group's members, zero for an empty one."""
    members = [np.flatnonzero(groups == group).tolist() for group in range(count)]
    zero = np.zeros_like(updates[0])
    return [mean_model([updates[i] for i in own]) if own else zero for own in members]


def mix_between(models: Sequence[Vector], rate: float, form: str) -> list[Vector]:
    """Return each group's model, mixed with the others': Algorithm 2, line 19.

    ``rate`` is eta_g. The form "sum" is the paper's w_j + eta_g sum_l w_l / |w_l| over
    the others; "convex" is the code's mean of all, w_j with weight 1 and each other
    with eta_g / |w_l|.

    Examples
    --------
    >>> models = [np.float32([3, 4]), np.float32([0, 2])]
    >>> mix_between(models, 1.0, "sum")[0]
    array([3., 5.], dtype=float32)
    >>> mix_between(models, 1.0, "convex")[0]
    array([2.       , 3.3333333], dtype=float32)
    """
    norms = np.array([np.linalg.norm(model) for model in models], float)
    shares = np.divide(rate, norms, out=np.zeros_like(norms), where=norms > 0)
    mixed = []
    for own in range(len(models)):
        # Line 19: w_j counts 1, each other eta_g / |w_l|.
        weights = np.where(np.arange(len(models)) == own, 1.0, shares)
        total = np.zeros(models[own].shape, np.float64)
        for weight, model in zip(weights, models, strict=True):
            total += weight * model
        scale = weights.sum() if form == "convex" else 1.0
        mixed.append((total / scale).astype(np.float32))
    return mixed


class FlexCFL(ChoosingStrategy):
    """Algorithm 2, with the group cold start of Algorithm 3."""

    Settings = FlexCFLSettings
    State = FlexCFLState
    discloses = Disclosure(singly="groups single clients' updates", uncovered=CHOICE)

    def initial_state(self) -> Any:
        """Return m groups at w_0, and no client (Algorithm 2, line 2)."""
        models = [self.run.initial_model()] * self.settings.clusters
        return FlexCFLState([], no_clusters(), models)

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Start the groups with the first clients; the others choose one (eq. 8)."""
        settings = self.settings
        rng = self.run.rng("cold-start", server_round)
        if not self.state.directions:
            asked = self.start_groups(server_round, newcomers, rng)
            newcomers = [each for each in newcomers if each.client not in asked]
        if settings.newcomers == "random":
            groups = rng.integers(settings.clusters, size=len(newcomers))
            self.admit(server_round, newcomers, groups.tolist())
        elif newcomers:
            super().welcome(server_round, newcomers)

    def start_groups(
        self, server_round: int, newcomers: list[Result], rng: Generator
    ) -> set[ClientId]:
        """Group the first clients by their updates, and return them: Algorithm 3."""
        settings = self.settings
        state = self.state
        results, asked = self.collect_updates(server_round, newcomers, rng)
        self.run.require_any(results, "query")
        updates = [result.arrays[0] for result in results]
        groups, state.directions = group_updates(
            updates, settings.clusters, settings.grouping, rng
        )
        if not settings.sketch:
            start = self.run.initial_model()
            # Lines 15 and 16: w_0 plus the mean of the members' updates.
            state.models = [start + direction for direction in state.directions]
        self.admit(server_round, results, groups.tolist())
        return asked

    def collect_updates(
        self, server_round: int, newcomers: list[Result], rng: Generator
    ) -> tuple[list[Result], set[ClientId]]:
        """Let alpha * m clients train from w_0: Algorithm 3, lines 2 to 6.

        Only m clients if the grouping is random. If fewer than m answer, others are
        asked. Returns the answers and all clients that were asked.
        """
        settings = self.settings
        reply = (settings.sketch or len(self.run.initial_model()),)
        # Without samples there is no update.
        able = [each.client for each in newcomers if each.num_examples]
        # Algorithm 3, line 2: a random subset.
        order = [able[row] for row in rng.permutation(len(able))]
        results: list[Result] = []
        asked: set[ClientId] = set()
        while len(results) < settings.clusters and len(asked) < len(order):
            count = int(settings.alpha * settings.clusters)
            if settings.grouping == "random":
                count = settings.clusters - len(results)
            some = sorted(order[len(asked) : len(asked) + count], key=client_order)
            tasks = [Task(client) for client in some]
            plan = Plan(tasks, [], {PRETRAIN: True}, reply)
            results += self.run.ask(server_round, plan)
            asked.update(some)
        return results, asked

    def admit(
        self, server_round: int, results: list[Result], clusters: Sequence[int]
    ) -> None:
        """Add clients to the state; those that chose hold the directions."""
        super().admit(server_round, results, clusters)
        chose = np.array([result.report is not None for result in results], bool)
        self.state.holding = np.append(self.state.holding, chose)

    @property
    def candidates(self) -> list[Vector]:
        """What clients compare their updates with: the groups' directions."""
        return self.state.directions

    @cached_property
    def candidates_config(self) -> dict[str, Scalar]:
        """The name under which clients keep the directions, which never change."""
        return {DIRECTIONS: digest(np.concatenate(self.candidates))}

    def receivers(self) -> BoolArray:
        """Return which clients have not received the directions yet, shape (n,)."""
        return ~self.state.holding

    def count_candidates(self, results: Results) -> int:
        """Return how many directions were sent; note which clients hold them now.

        A client that reports them as lost receives them again.
        """
        sent = int(np.count_nonzero(self.receivers()))
        rows = self.state.rows(result.client for result in results)
        self.state.holding[rows] = [
            not result.metrics.get("lost") for result in results
        ]
        return sent

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average each group, then mix those that were trained (lines 8 to 13)."""
        super().absorb_train(server_round, results)
        state = self.state
        settings = self.settings
        trained = np.unique(state.clusters[self.state.rows(r.client for r in results)])
        if settings.mixing and len(trained) > 1:
            models = [state.models[group] for group in trained]
            # Line 13: InterGroupAggregation.
            mixed = mix_between(models, settings.mixing, settings.mixing_form)
            for group, model in zip(trained, mixed, strict=True):
                # The group goes on, so its optimiser does, too.
                state.hand_on([state.models[group]], np.ones(1), model)
                state.models[group] = model

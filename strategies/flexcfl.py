"""FlexCFL: groups by the directions of clients' updates, and migration under shift.

Duan et al., "Flexible Clustered Federated Learning for Client-Level Data Distribution
Shift" (TPDS 2022; Algorithms 2 and 3, eq. 3 to 9). Before the first round alpha*m
clients train from w_0; their updates are grouped by EDC or MADC (group cold start).
Everyone else compares its own update from w_0 with the groups' directions (client cold
start). Each round: participants train -> average per group -> models are mixed between
groups -> clients whose label counts changed do the cold start again, on the device.

Server keeps: m models and the m directions of the groups at their start. Leaves the
device: the update from w_0 (d floats, or its sketch) of alpha*m clients; the number of
a group; the model of a participant (d floats).

FedGroup (Duan et al., ISPA 2021) is FlexCFL without migration: `strategy=fedgroup`.

Deviations and readings, where the paper and its code part ways:

* A group's first model is w_0 plus the mean update of its members, its direction the
  mean update. Algorithm 3, line 15, averages the updates alone, and line 16 then takes
  w_0 off, which fits only if line 15 meant the trained weights, as in the code.
* Line 11 says EMD where it means EDC. Its factor 1/m and the square root have no effect
  on k-means. The singular vectors are exact here, by the matrix of inner products; the
  code's are randomised.
* Cold start trains for 50 mini-batches, as the code does (`pretraining`); the text says
  one epoch. The update serves for the comparison only: the client starts its next
  training from its group's model.
* All clients do the cold start when they join; in the paper when first selected. The
  bytes are the same once everyone was, and everyone is served from round 1 on.
* Nobody receives w_0: a client draws it from the run's seed. So the bytes are those of
  Figure 6, 1.26 times FedAvg's: the directions to all, the updates of alpha*m clients.
* Shift is a change of label counts by more than 20% of the samples at the last cold
  start. The code's distance is blind to which labels changed (`shift.metric`).
* The test is made on the next round's data at the end of a round, and in force before
  that is trained, as Algorithm 2 orders it.
* Models are mixed by the code's convex form, which is stable for eta_g = 5; line 19 as
  printed lets norms grow in every round (`mixing_form: sum`). As in the code, groups
  that nobody trained in a round neither give nor take.
* Weights of the clients' samples sum to 1; the code's to slightly less.
* A client without samples has no update: it takes no part in the first cold start, and
  joins group 0 until it has some, or any with `newcomers: random`.
* If updates are alike, or fewer than m clients answer at all, some groups start empty,
  with w_0 and no direction; nobody chooses these.
* A group is tested on its current members from round 1 on; in the paper on all clients
  that it ever had, once all were tested.
* `shift.metric: reference` takes the authors' distance, and not the number of samples
  and the first label counts at construction, which their threshold uses.
* Participants are drawn at random in every round; the code takes everyone in turn
  first.
* `sketch` is ours: updates are compared by a seeded random projection, which makes
  cold start cheaper in bytes by d/k. Groups then start from w_0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cfl_flower.clustering.algorithms import (
    complete_linkage,
    kmeans,
    number_by_appearance,
)
from cfl_flower.clustering.representations import digest
from cfl_flower.clustering.similarity import (
    cosine_matrix,
    decomposed_cosines,
    madc,
)
from cfl_flower.communication.records import payload_bytes
from cfl_flower.communication.results import Results
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.settings import require, require_one_of
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
from strategies.base import no_clusters
from strategies.choosing import ChoosingSettings, ChoosingState, ChoosingStrategy

GROUPINGS = ("edc", "madc", "random")


@dataclass(frozen=True)
class FlexCFLSettings(ChoosingSettings):
    """FlexCFL's settings.

    Attributes
    ----------
    alpha : float
        The group cold start takes alpha * m clients.
    grouping : {"edc", "madc", "random"}
        How they are grouped; ``random`` is the paper's ablation RCC, in which the
        updates of m random ones are the directions.
    newcomers : {"cosine", "random"}
        How the others choose; ``random`` is the paper's ablation RAC. Who migrates
        later chooses by cosine.
    pretraining : int
        Mini-batches of a cold start.
    sketch : int
        Dimension of the random projection of updates; 0 compares whole updates.
    mixing : float
        eta_g, the rate of mixing between groups.
    mixing_form : {"convex", "sum"}
    """

    migration: bool = True
    alpha: float = 20.0
    grouping: str = "edc"
    newcomers: str = "cosine"
    pretraining: int = 50
    sketch: int = 0
    mixing: float = 0.0
    mixing_form: str = "convex"

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = 1 <= self.alpha < np.inf
        require(ok, "strategy.alpha", self.alpha, "a number of at least 1")
        require_one_of("strategy.grouping", self.grouping, GROUPINGS)
        require_one_of("strategy.newcomers", self.newcomers, ("cosine", "random"))
        for name, least in (("pretraining", 1), ("sketch", 0)):
            value = getattr(self, name)
            require(value >= least, f"strategy.{name}", value, f"at least {least}")
        ok = 0 <= self.mixing < np.inf
        require(ok, "strategy.mixing", self.mixing, "a number of at least 0")
        require_one_of("strategy.mixing_form", self.mixing_form, ("convex", "sum"))


@dataclass
class FlexCFLState(ChoosingState):
    """FlexCFL's state.

    Attributes
    ----------
    directions : list of Vector
        Each group's at its start, of shape (d,) or (k,) if sketched; never updated.
    holding : bool array of shape (n,)
        Which clients have received the directions.
    """

    directions: list[Vector]
    holding: BoolArray


def group_updates(
    updates: Sequence[Vector], count: int, grouping: str, rng: np.random.Generator
) -> tuple[IntArray, list[Vector]]:
    """Group clients by their updates: Algorithm 3, lines 7 to 16.

    Parameters
    ----------
    updates : sequence of n vectors of shape (d,)
    count : int
        m.
    grouping : {"edc", "madc", "random"}

    Returns
    -------
    int array of shape (n,)
        The group of each client. ``random`` makes each a group of its own: it is given
        no more than m.
    list of m vectors of shape (d,)
        The direction of each group; zero for a group that nobody is in.
    """
    if grouping == "random":
        groups = np.arange(len(updates))
    elif grouping == "madc":
        groups = complete_linkage(madc(cosine_matrix(updates)), count)
    else:
        groups = kmeans(decomposed_cosines(updates, count), count, rng)
    groups = number_by_appearance(groups)
    return groups, mean_directions(updates, groups, count)


def mean_directions(
    updates: Sequence[Vector], groups: IntArray, count: int
) -> list[Vector]:
    """Return the plain mean update of each group's members, zero for an empty one."""
    members = [np.flatnonzero(groups == group) for group in range(count)]
    return [
        mean_model([updates[row] for row in rows.tolist()])
        if len(rows)
        else np.zeros_like(updates[0])
        for rows in members
    ]


def mix_between(models: Sequence[Vector], rate: float, form: str) -> list[Vector]:
    """Return each group's model, mixed with the others': Algorithm 2, line 19.

    Parameters
    ----------
    models : sequence of m vectors of shape (d,)
        All from before.
    rate : float
        eta_g.
    form : {"convex", "sum"}
        ``sum`` is the paper's w_j + eta_g sum_l w_l / |w_l| over the others. ``convex``
        is the authors' code: the mean of all, w_j with weight 1 and each other with
        eta_g / |w_l|.

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

    def initial_state(self) -> Any:
        """Return the state before any client is known: m groups at w_0."""
        models, nobody = [self.initial_model()] * self.settings.clusters, no_clusters()
        return FlexCFLState([], nobody, models, nobody, [], nobody.astype(bool))

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Start the groups with the first clients; let all others choose one."""
        settings, rng = self.settings, self.rng("cold-start", round)
        if not self.state.directions:
            asked = self.start_groups(round, newcomers, rng)
            newcomers = [each for each in newcomers if each.client not in asked]
        if settings.newcomers == "random":
            groups = rng.integers(settings.clusters, size=len(newcomers))
            self.admit(round, newcomers, groups.tolist(), holding=False)
        elif newcomers:
            super().welcome(round, newcomers)

    def start_groups(
        self, round: int, newcomers: list[Result], rng: np.random.Generator
    ) -> set[ClientId]:
        """Let clients train from w_0, and group them by their updates: Algorithm 3.

        Returns
        -------
        set of ClientId
            Who was asked: alpha * m clients, or only m where the grouping is random.
            If fewer than m of them answer, others take their place.
        """
        settings, state, start = self.settings, self.state, self.initial_model()
        # Without samples there is no update.
        able = [each.client for each in newcomers if each.num_examples]
        order = [able[row] for row in rng.permutation(len(able))]
        results: list[Result] = []
        asked: set[ClientId] = set()
        while len(results) < settings.clusters and len(asked) < len(order):
            # As many groups as there are random centres: none more.
            missing = settings.clusters - len(results)
            count = int(settings.alpha * settings.clusters)
            count = missing if settings.grouping == "random" else count
            some = sorted(order[len(asked) : len(asked) + count], key=client_order)
            results += self.ask_updates(round, some, len(start))
            asked.update(some)
        self.require_any(results, "query")
        updates = [result.arrays[0] for result in results]
        groups, state.directions = group_updates(
            updates, settings.clusters, settings.grouping, rng
        )
        if not settings.sketch:
            state.models = [start + direction for direction in state.directions]
        self.admit(round, results, groups.tolist(), holding=False)
        return asked

    def ask_updates(
        self, round: int, clients: list[ClientId], length: int
    ) -> list[Result]:
        """Return the updates from w_0 of those who answer, or their sketches."""
        tasks = [Task(client) for client in clients]
        reply = (self.settings.sketch or length,)
        return self.ask(round, Plan(tasks, [], {"pretrain": True}, reply))

    def admit(
        self,
        round: int,
        results: list[Result],
        clusters: Sequence[int],
        holding: bool = True,
    ) -> None:
        """Take clients into the state, and note whether they hold the directions."""
        super().admit(round, results, clusters)
        received = np.full(len(results), holding)
        self.state.holding = np.append(self.state.holding, received)

    def candidate_models(self) -> list[Vector]:
        """Return the groups' directions."""
        directions: list[Vector] = self.state.directions
        return directions

    def choice_config(self) -> dict[str, Scalar]:
        """Return the name under which clients keep the directions."""
        return {"directions": self._name}

    @cached_property
    def _name(self) -> str:
        # The directions never change once they are there.
        return digest(np.concatenate(self.state.directions))

    def needs_models(self) -> BoolArray:
        """Return which clients have not received the directions yet."""
        missing: BoolArray = ~self.state.holding
        return missing

    def plan_evaluate(self, round: int, test: bool) -> Plan:
        """Test; who does not hold the directions yet receives them, too."""
        plan = super().plan_evaluate(round, test)
        if self.settings.migration:
            sent = int(np.count_nonzero(self.needs_models()))
            self.record.bytes_down += sent * payload_bytes(self.candidate_models(), {})
        return plan

    def count_download(self, results: list[Result]) -> None:
        """Note who holds the directions now."""
        rows = self.rows(result.client for result in results)
        held = [not result.metrics.get("lost") for result in results]
        self.state.holding[rows] = held

    def absorb_train(self, round: int, results: Results) -> None:
        """Average within each group, then mix between those that were trained."""
        super().absorb_train(round, results)
        state, settings = self.state, self.settings
        trained = np.unique(state.clusters[self.rows(r.client for r in results)])
        if settings.mixing and len(trained) > 1:
            models = [state.models[group] for group in trained]
            mixed = mix_between(models, settings.mixing, settings.mixing_form)
            for group, model in zip(trained, mixed, strict=True):
                state.models[group] = model

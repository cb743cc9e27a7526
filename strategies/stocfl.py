"""StoCFL: clients are clustered as they come to take part, under one global model.

Zeng et al., "Stochastic Clustered Federated Learning" (Algorithm 1, eq. 2 and 3,
section 4.4). Each round: participants that were not seen before report psi, the
direction of their loss at a fixed anchor -> each is a cluster of its own; clusters of
this round's participants are merged while the cosine of two is above tau, the best pair
first -> participants receive the global model omega and their cluster's model theta,
train omega, and theta on f(theta) + lambda/2 ||theta - omega||^2 -> both are averaged.

Server keeps: omega; for each cluster theta and the sum of its members' psi; psi of each
client that was seen (d floats, or k if sketched). Leaves the device: psi, once; omega
and theta of a participant (2d floats).

Cluster 0 are the clients that the server does not know yet; its model is omega, by
which they are served. In the paper each of them is a cluster with a model of its own,
w_0, that nothing distinguishes: 4,800 clients would be tested with an untrained model
until they take part.

Degenerate cases: tau = 1 is Ditto; tau = -1 is one cluster, held near FedAvg's model as
FedProx holds it near its own; and with lambda = 0 FedAvg, to those who have taken part.

Deviations and readings, where the paper and its code part ways:

* psi is the normalised gradient, as in the paper. The code's is the difference after
  some epochs, not normalised (`representation: difference`, normalised here).
* A cluster's vector is the mean over all its members (eq. 2); the code's over those
  sampled this round. Line 9 says the sum, which has the same direction.
* Two clusters are merged above tau, as in line 12; the code's rule is at or above. The
  vectors are made anew after each merge; the code compares those of before, so that
  clusters chain (`recompute: false`).
* The paper says that models are merged, not how: here by the mean of the trained ones,
  weighted by members. In the code the lower cluster keeps its own, unless the higher is
  larger and was trained; a larger lower one that was not starts afresh, whatever the
  other has learned (`merged_model: larger`).
* Clients train omega side by side, as in the paper. In the code each starts from what
  the one before made of it (`omega: sequential`): as many steps of SGD in a row, which
  makes omega far stronger, at one exchange of messages for each participant.
* A cluster is first trained from the current omega, as in the code; from w_0 in the
  paper (`start: initial`).
* Averages are plain, as in the code (`weighting`).
* A client that joins after the first round reports psi at once, and joins the nearest
  cluster at or above tau, else a new one that starts from the nearest's model (section
  4.4). One without samples has no direction, and stays in cluster 0; so does one whose
  psi was lost, until it takes part again.
* `sketch` is ours: psi is reported as a seeded random projection to k numbers (see
  `directions.sketch`). The cosine of two clients has a standard error of at most
  sqrt(2 / k), of two clusters likewise; 0.04 for k = 1,024. The server then never holds
  n x d numbers.
* Results are added up where they are made (`communication.partial_sums`): the server
  receives sums, from each worker one for omega and one for each cluster, and never
  holds all replies; unless `devices.over_commitment` leaves open until the end which
  ones count. A device sends its own result.
* `refresh: on_drift` is ours: StoCFL never asks for psi again, so it is blind to drift.
  With it, a client whose data changed reports again after the test, and is placed anew
  as one that joins, in force from the next round on. All are placed by the clusters as
  they were before any of them left, or were founded since: the order does not matter to
  who finds a cluster that there was.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.clustering.merging import find_merges, objective, purity
from cfl_flower.clustering.similarity import gram_matrix, nearest_direction
from cfl_flower.communication.results import Results
from cfl_flower.errors import InvalidResultError
from cfl_flower.learning.aggregation import RunningMean, mean_model
from cfl_flower.settings import require, require_one_of
from cfl_flower.state import ClusteredState
from cfl_flower.types import (
    BoolArray,
    FloatArray,
    IntArray,
    Plan,
    Result,
    SumSpec,
    Task,
    Vector,
)
from strategies.base import ClusteredStrategy, no_clusters
from strategies.bilevel import BilevelSettings

UNKNOWN = 0
"""The cluster of the clients that the server does not know yet; its model is omega."""

MEMORY_WARNING = 4e9
"""Bytes of all clients' psi beyond which a run begins with a warning."""

TOLERANCE = 1e-3
"""By how much the length of a reported psi may differ from 1."""


@dataclass(frozen=True)
class StoCFLSettings(BilevelSettings):
    """StoCFL's settings.

    Attributes
    ----------
    threshold : float
        tau, the cosine above which two clusters are one.
    representation : {"gradient", "difference"}
        psi: the gradient at the anchor, or the anchor less what training makes of it.
    representation_epochs : int
        Of the training for a difference.
    sketch : int
        k, the dimension of the random projection of psi; 0 reports all of it.
    recompute : bool
        Cluster vectors are made anew after each merge.
    merged_model : {"mean", "larger"}
    omega : {"parallel", "sequential"}
        Whether participants train omega side by side or one after the other.
    service : {"cluster", "omega"}
        Clients are served their cluster's model, or the global one.
    refresh : {"never", "on_drift"}
        When a client reports psi again.
    """

    threshold: float = 0.5
    representation: str = "gradient"
    representation_epochs: int = 1
    sketch: int = 0
    recompute: bool = True
    merged_model: str = "mean"
    omega: str = "parallel"
    service: str = "cluster"
    refresh: str = "never"

    def __post_init__(self) -> None:
        super().__post_init__()
        ok, tau = -1 <= self.threshold <= 1, self.threshold
        require(ok, "strategy.threshold", tau, "a cosine from -1 to 1")
        for name, allowed in (
            ("representation", ("gradient", "difference")),
            ("merged_model", ("mean", "larger")),
            ("omega", ("parallel", "sequential")),
            ("service", ("cluster", "omega")),
            ("refresh", ("never", "on_drift")),
        ):
            require_one_of(f"strategy.{name}", getattr(self, name), allowed)
        for name, least in (("representation_epochs", 1), ("sketch", 0)):
            value = getattr(self, name)
            require(value >= least, f"strategy.{name}", value, f"at least {least}")


@dataclass
class StoCFLState(ClusteredState):
    """StoCFL's state; ``models[0]`` is omega.

    Attributes
    ----------
    representations : list of n vectors
        psi of each client, of shape (d,) or (k,); empty for those not known yet.
    reported : int array of shape (n,)
        The round in which each client's psi was taken.
    sums : list of K float64 arrays
        The sum of its members' psi for each cluster; empty for cluster 0.
    trained : bool array of shape (K,)
        Whether any client has trained the cluster's model.
    """

    representations: list[Vector]
    reported: IntArray
    sums: list[FloatArray]
    trained: BoolArray

    def known(self) -> BoolArray:
        """Return which clients have reported psi, shape (n,)."""
        return np.array([len(each) > 0 for each in self.representations], bool)


class StoCFL(ClusteredStrategy):
    """Algorithm 1."""

    Settings = StoCFLSettings
    State = StoCFLState

    def initial_state(self) -> Any:
        """Return the state before any client is known: omega alone."""
        self.warn_of_memory()
        nobody, untrained = no_clusters(), np.zeros(1, bool)
        models, no_sum = [self.initial_model()], np.zeros(0)
        return StoCFLState([], nobody, models, [], nobody, [no_sum], untrained)

    def warn_of_memory(self) -> None:
        """Say what the psi of all clients will take, if that is much."""
        clients, width = self.config.clients, self.settings.sketch
        size = 4 * clients * (width or len(self.initial_model()))
        if size > MEMORY_WARNING:
            warnings.warn(
                f"strategy.sketch={width} keeps the representations of {clients} "
                f"clients in {size / 1e9:.0f} GB of the server's memory; "
                f"strategy.sketch=1024 takes {4096 * clients / 1e9:.2g} GB",
                stacklevel=1,
            )

    # Who is where --------------------------------------------------------------------

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Take the first clients in unknown; place later ones by their psi."""
        state = self.state
        late = len(state.models) > 1
        self.join(newcomers, np.full(len(newcomers), UNKNOWN))
        state.representations += [np.zeros(0, np.float32)] * len(newcomers)
        state.reported = np.append(state.reported, np.zeros(len(newcomers), np.int64))
        if late:
            rows = self.rows(result.client for result in newcomers).tolist()
            for row in self.ask_directions(round, rows):
                self.place(row, state.sums)

    def ask_directions(self, round: int, rows: Sequence[int]) -> list[int]:
        """Ask clients for psi; return who gave one: Algorithm 1, lines 5 and 6."""
        clients = [self.state.clients[row] for row in rows]
        tasks = [Task(client, (0,)) for client in clients]
        plan = Plan(tasks, [self.initial_model()], {"represent": True}, (self.width,))
        results = self.screen("query", self.ask(round, plan), read_direction)
        results = [result for result in results if result.num_examples]
        answered: list[int] = self.rows(result.client for result in results).tolist()
        for row, result in zip(answered, results, strict=True):
            self.note_direction(row, result.arrays[0], round - 1)
        return answered

    @property
    def width(self) -> int:
        """The length of psi."""
        return int(self.settings.sketch or len(self.state.models[UNKNOWN]))

    def note_direction(self, row: int, direction: Vector, round: int) -> None:
        """Keep a client's psi."""
        self.state.representations[row] = direction.copy()
        self.state.reported[row] = round

    def found_cluster(self, row: int, model: Vector, trained: bool) -> None:
        """Make a client that is in no cluster one of its own."""
        state = self.state
        state.clusters[row] = len(state.models)
        state.models.append(model)
        state.sums.append(state.representations[row].astype(np.float64))
        state.trained = np.append(state.trained, trained)

    def place(self, row: int, sums: Sequence[FloatArray]) -> None:
        """Let a client join the nearest cluster, or found one: section 4.4.

        Parameters
        ----------
        row : int
            A client in no cluster, whose psi is known.
        sums : sequence of K arrays of shape (w,)
            By which the nearest is found: the state's, or those of before some left.
        """
        state, nearest = self.state, UNKNOWN
        direction = state.representations[row]
        if len(sums) > 1:
            found, cosine = nearest_direction(direction, sums[1:])
            nearest = found + 1
            if cosine >= self.settings.threshold:
                state.clusters[row] = nearest
                state.sums[nearest] = state.sums[nearest] + direction
                return
        # Omega, if there is no cluster yet: that was trained for none.
        self.found_cluster(row, state.models[nearest], bool(state.trained[nearest]))

    def drop_empty(self) -> None:
        """Forget clusters without members, and number the others in order."""
        state, keep = self.state, self.state.sizes > 0
        keep[UNKNOWN] = True
        kept = np.flatnonzero(keep).tolist()
        state.clusters = (np.cumsum(keep) - 1)[state.clusters]
        state.models = [state.models[cluster] for cluster in kept]
        state.sums = [state.sums[cluster] for cluster in kept]
        state.trained = state.trained[kept]

    def merge(self, rows: Sequence[int]) -> int:
        """Merge the clusters of some clients; return how many went into others."""
        state, settings = self.state, self.settings
        touched = np.setdiff1d(state.clusters[rows], [UNKNOWN])
        if len(touched) < 2:
            return 0
        products = gram_matrix([state.sums[cluster] for cluster in touched])
        merges = find_merges(products, settings.threshold, settings.recompute)
        sizes = state.sizes
        for first, second in merges:
            one, other = int(touched[first]), int(touched[second])
            pair, rule = [one, other], settings.merged_model
            state.models[one], state.trained[one] = merge_models(
                [state.models[k] for k in pair], sizes[pair], state.trained[pair], rule
            )
            state.sums[one] = state.sums[one] + state.sums[other]
            sizes[one] += sizes[other]
            state.clusters[state.clusters == other] = one
        self.drop_empty()
        return len(merges)

    # Training ------------------------------------------------------------------------

    def plan_train(self, round: int) -> Plan:
        """Meet participants not seen before, merge, and send both models to all."""
        state, chosen = self.state, self.choose_participants(round)
        known = state.known()
        for row in self.ask_directions(round, [r for r in chosen if not known[r]]):
            self.found_cluster(row, state.models[UNKNOWN], trained=False)
        self.record.measures["merged"] = self.merge(chosen)
        initial = self.settings.start == "initial"
        start = self.initial_model() if initial else state.models[UNKNOWN]
        for cluster in np.flatnonzero(~state.trained):
            if cluster != UNKNOWN:
                state.models[cluster] = start
        tasks = [
            Task(state.clients[row], (UNKNOWN, int(state.clusters[row])))
            for row in chosen
        ]
        # theta, then omega.
        bases = (1,) if self.settings.omega == "sequential" else (1, 0)
        sum_spec = SumSpec(bases, self.settings.weighting == "samples")
        reply = (len(start),) * len(bases)
        return Plan(tasks, list(state.models), {}, reply, sum_spec)

    def absorb_train(self, round: int, results: Results) -> None:
        """Take the means as the next models: lines 17 to 19."""
        state, step = self.state, self.step
        before = state.models[UNKNOWN]
        for (array, cluster), total in sorted(results.sums.items()):
            if array == 0 and cluster != UNKNOWN:
                state.models[cluster] = step(state.models[cluster], total.mean())
                state.trained[cluster] = True
        state.models[UNKNOWN] = step(before, self.next_omega(round, before, results))
        self.measure(round)

    def next_omega(self, round: int, omega: Vector, results: Results) -> Vector:
        """Return the mean of omega as the participants trained it."""
        if self.settings.omega == "parallel":
            return results.sums[1, UNKNOWN].mean()
        trained = RunningMean()
        for result in results:
            task = Task(result.client, (0,))
            plan = Plan([task], [omega], {"global": True}, (len(omega),))
            for answer in self.ask(round, plan):
                omega = answer.arrays[0]
                trained.add(omega, self.weight(answer))
        return trained.value() if trained else omega

    def measure(self, round: int) -> None:
        """Note how far the clustering has come."""
        state, measures, known = self.state, self.record.measures, self.state.known()
        measures["known"] = int(known.sum())
        measures["found"] = len(state.models) - 1
        measures["objective"] = objective(state.sums[1:])
        truth = self.true_concepts(round)
        measures["purity"] = None
        if truth is not None and known.any():
            measures["purity"] = purity(state.clusters[known], truth[known])

    # Drift ---------------------------------------------------------------------------

    def plan_evaluate(self, round: int, test: bool) -> Plan:
        """Test, and ask clients that are known whether their data changed."""
        state, settings = self.state, self.settings
        served = state.clusters.tolist()
        if settings.service == "omega":
            served = [UNKNOWN] * len(served)
        asked = state.known() & (settings.refresh == "on_drift")
        if not test and not asked.any():
            return Plan([])
        tasks = [
            Task(
                client,
                (cluster,) if test else (),
                {"reported": int(reported)} if ask else {},
            )
            for client, cluster, ask, reported in zip(
                state.clients, served, asked, state.reported, strict=True
            )
            if test or ask
        ]
        return Plan(tasks, state.models if test else [])

    def read_result(self, phase: str, result: Result) -> Result:
        """Read a psi that is reported after the test."""
        if phase != "evaluate" or "representation" not in result.metrics:
            return result
        report = DriftReport.from_metrics(result.metrics, self.width, "direction")
        check_direction(report.representation)
        return replace(result, report=report)

    def absorb_evaluate(self, round: int, results: Results) -> None:
        """Take clients whose data changed out of their clusters, and place them."""
        if self.settings.refresh == "never":
            return
        state, record = self.state, self.record
        reports = [result for result in results if result.report is not None]
        rows = self.rows(result.client for result in reports)
        before, frozen = state.clusters[rows], list(state.sums)
        for row, cluster in zip(rows, before, strict=True):
            state.sums[cluster] = state.sums[cluster] - state.representations[row]
        state.clusters[rows] = UNKNOWN
        for row, result in zip(rows, reports, strict=True):
            self.note_direction(int(row), result.report.representation, round)
            self.place(int(row), [*frozen, *state.sums[len(frozen) :]])
        record.drifted = len(reports)
        record.moved = int(np.count_nonzero(state.clusters[rows] != before))
        self.drop_empty()


def merge_models(
    models: list[Vector], sizes: IntArray, trained: BoolArray, rule: str
) -> tuple[Vector, bool]:
    """Return the model of two clusters that become one, and whether it was trained.

    Parameters
    ----------
    models : list of two vectors of shape (d,)
        That of the cluster with the lower number first.
    sizes : int array of shape (2,)
        Members.
    trained : bool array of shape (2,)
        Whether anyone has trained the model.
    rule : {"mean", "larger"}
        The mean of the trained ones, weighted by members; or, as in the authors' code,
        the first one, unless the second is of a larger cluster and was trained.

    Examples
    --------
    >>> pair = [np.float32([1]), np.float32([5])]
    >>> merge_models(pair, np.array([3, 1]), np.array([True, True]), "mean")
    (array([2.], dtype=float32), True)
    """
    if rule == "larger":
        # The code asks only whether the larger has a model to take: one that nobody
        # trained replaces none.
        kept = int(sizes[1] > sizes[0] and trained[1])
    elif trained.all():
        return mean_model(models, sizes.astype(float)), True
    else:
        kept = int(trained[1])
    return models[kept], bool(trained[kept])


def check_direction(direction: Vector) -> None:
    """Refuse a psi that would weigh more, or less, than another client's.

    Raises
    ------
    InvalidResultError
        If its length is neither 0 nor 1.
    """
    length = float(np.linalg.norm(direction.astype(np.float64)))
    if length != 0 and abs(length - 1) > TOLERANCE:
        detail = f"a direction of length {length:.4g} instead of 1"
        raise InvalidResultError("representation", detail)


def read_direction(result: Result) -> Result:
    """Return an answer whose array is a valid psi."""
    check_direction(result.arrays[0])
    return result

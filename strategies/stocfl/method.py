"""StoCFL: clients are clustered as they come to take part, around one global model.

Zeng et al., "Stochastic Clustered Federated Learning" (Algorithm 1, eq. 2 and 3,
section 4.4). In each round participants are sampled; those not seen before report psi,
the direction of their loss at a fixed anchor, and are a cluster each; clusters of
participants are merged while the cosine of two is above tau, the best pair first;
participants receive the global model omega and their cluster's theta, train omega, and
theta on f(theta) + lambda/2 ||theta - omega||^2; both are averaged.

Server keeps: omega; for each cluster theta and the sum of its members' psi (d floats,
or k if sketched); a sketch of psi of each client that was seen, and all of it with
`refresh=on_drift`. Leaves the device: psi, once; omega and theta of a participant (2d
floats).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.clustering.similarity import gram_matrix, nearest_direction, sketch
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import ClusteredStrategy, Disclosure
from cfl_flower.errors import InvalidResultError
from cfl_flower.learning.aggregation import RunningMean
from cfl_flower.types import ClientId, FloatArray, Plan, Result, SumSpec, Task, Vector
from clients.stocfl import PSI, REPORTED, TRAIN_OMEGA
from strategies.stocfl.merging import find_merges, merge_models, purity
from strategies.stocfl.state import EMPTY, UNKNOWN, StoCFLSettings, StoCFLState

KEPT = 4096
"""Numbers of a psi that are kept if it is not needed again; its cosines with others
have a standard error of 0.02 then."""

TOLERANCE = 1e-3
"""Largest difference from 1 of the length of a reported psi."""

THETA = 0
OMEGA = 1
"""The arrays of a participant's reply."""


def check_direction(direction: Vector) -> None:
    """Raise `InvalidResultError` for a psi whose length is neither 0 nor 1."""
    length = float(np.linalg.norm(direction.astype(np.float64)))
    if length != 0 and abs(length - 1) > TOLERANCE:
        detail = f"a direction of length {length:.4g} instead of 1"
        raise InvalidResultError("representation", detail)


def ask_for_changes(tests: Plan, reported: Mapping[ClientId, int]) -> Plan:
    """Let known clients report psi again with the test, if their data changed.

    ``tests`` may have no tasks; ``reported`` is the round in which each psi arrived.
    """
    tasks = [
        replace(task, config={REPORTED: reported[task.client]})
        if task.client in reported
        else task
        for task in tests.tasks or map(Task, reported)
    ]
    return replace(tests, tasks=tasks)


class StoCFL(ClusteredStrategy):
    """Algorithm 1: `plan_train` is lines 4 to 16, `absorb_train` lines 17 to 19."""

    Settings = StoCFLSettings
    State = StoCFLState
    discloses = Disclosure(models=2, reports=True)

    @property
    def width(self) -> int:
        """The length of psi."""
        return int(self.settings.sketch or len(self.state.models[UNKNOWN]))

    def read_result(self, phase: str, result: Result) -> Result:
        """Read psi, which is the array of a query's answer or a metric of a test.

        Raises `InvalidResultError` if it is not a direction of the right width.
        """
        if phase == "query" and result.arrays:
            report = DriftReport(result.arrays[0], result.num_examples)
        elif phase == "evaluate" and "representation" in result.metrics:
            report = DriftReport.from_metrics(result.metrics, self.width, "direction")
        else:
            return result
        check_direction(report.representation)
        return replace(result, report=report)

    # A round: Algorithm 1 ------------------------------------------------------------

    def plan_train(self, server_round: int) -> Plan:
        """Cluster the participants, and send omega and their theta to each."""
        participants = self.run.participants.choose(server_round)  # line 4
        known = self.state.known()
        newcomers = [row for row in participants if not known[row]]
        # Ask even without newcomers: the state may change once `ask` has returned.
        for row, direction in self.ask_directions(server_round, newcomers):
            self.state.open_cluster(row, direction, UNKNOWN)  # lines 5 to 7
        merges = self.merge_clusters(participants)  # lines 8 to 13
        self.run.record.measures["merged"] = merges
        return self.plan_local_training(participants)  # lines 14 to 16

    def ask_directions(
        self, server_round: int, rows: Sequence[int]
    ) -> Iterator[tuple[int, Vector]]:
        """Yield row and psi of each client that answers."""
        tasks = [Task(self.state.clients[row], (0,)) for row in rows]
        plan = Plan(tasks, [self.run.initial_model()], {PSI: True}, (self.width,))
        for part in self.run.ask_in_parts(server_round, plan):
            answers = self.run.read("query", part)
            # Without samples there is no direction.
            valid = [result for result in answers if result.num_examples]
            yield from self.take_directions(valid, server_round - 1)

    def take_directions(
        self, results: Sequence[Result], server_round: int
    ) -> Iterator[tuple[int, Vector]]:
        """Yield row and psi of results, and save the psi and the round."""
        # A cluster has the sum of its members' psi: to subtract one needs all of it.
        whole = self.settings.refresh == "on_drift" or self.width <= KEPT
        seed = self.run.config.seed
        rows = self.state.rows(result.client for result in results).tolist()
        for row, result in zip(rows, results, strict=True):
            # A copy: the array that it is a view of has those of other clients, too.
            direction = result.report.representation.copy()
            kept = direction if whole else sketch(direction, KEPT, seed)
            self.state.representations[row] = kept
            self.state.reported[row] = server_round
            yield row, direction

    def merge_clusters(self, rows: Sequence[int]) -> int:
        """Merge the clusters of some clients; return the number of merges."""
        state = self.state
        settings = self.settings
        touched = np.setdiff1d(state.clusters[rows], [UNKNOWN])
        if len(touched) < 2:
            return 0
        products = gram_matrix([state.sums[cluster] for cluster in touched])
        merges = find_merges(products, settings.threshold, settings.recompute)
        sizes = state.sizes
        rule = settings.merged_model
        for first, second in merges:
            one = int(touched[first])
            other = int(touched[second])
            pair = [one, other]
            models = [state.models[cluster] for cluster in pair]
            merged = merge_models(models, sizes[pair], state.trained[pair], rule)
            state.hand_on(models, sizes[pair].astype(float), merged[0])
            state.models[one], state.trained[one] = merged
            state.add_direction(one, state.sums[other])
            # Free the memory of the merged one at once: there may be hundreds.
            state.models[other] = state.models[UNKNOWN]
            state.sums[other] = EMPTY
            sizes[one] += sizes[other]
            state.clusters[state.clusters == other] = one
        state.drop_empty()
        return len(merges)

    def plan_local_training(self, participants: Sequence[int]) -> Plan:
        """Send omega and theta, which starts from omega as it is now, or from w_0."""
        state = self.state
        settings = self.settings
        omega = state.models[UNKNOWN]
        start = self.run.initial_model() if settings.start == "initial" else omega
        for cluster in np.flatnonzero(~state.trained[1:]) + 1:
            state.models[cluster] = start
        tasks = [
            Task(state.clients[row], (UNKNOWN, int(state.clusters[row])))
            for row in participants
        ]
        # The place of the model that each array, THETA and OMEGA, was trained from.
        bases = (1,) if settings.omega == "sequential" else (1, 0)
        sum_spec = SumSpec(bases, settings.weighting == "samples")
        reply = (len(omega),) * len(bases)
        return Plan(tasks, state.models, {}, reply, sum_spec)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average omega, and theta of each cluster (lines 17 to 19)."""
        state = self.state
        step = self.run.step
        for array, cluster in sorted(results.sums):
            if array == THETA and cluster != UNKNOWN:
                # `pop` frees the sum, which is not needed once its model is made.
                mean = results.sums.pop((array, cluster)).mean()
                # Line 19: theta_k.
                state.models[cluster] = step(state.models[cluster], mean)
                state.trained[cluster] = True
        omega = state.models[UNKNOWN]
        mean = self.next_omega(server_round, omega, results)
        # Line 17: omega.
        state.models[UNKNOWN] = step(omega, mean)
        measures = self.run.record.measures
        known = state.known()
        measures["known"] = int(known.sum())
        measures["found"] = len(state.sums) - 1
        measures["purity"] = None
        truth = self.run.true_concepts(server_round)
        if truth is not None:
            compared = known & self.run.present()
            if compared.any():
                measures["purity"] = purity(state.clusters[compared], truth[compared])

    def next_omega(self, server_round: int, omega: Vector, results: Results) -> Vector:
        """Return the mean of omega as the participants trained it."""
        if self.settings.omega == "parallel":
            # There is no result if no simulated client was present in the round.
            found = results.sums.get((OMEGA, UNKNOWN))
            return omega if found is None else found.mean()
        trained = RunningMean()
        for result in results:
            task = Task(result.client, (0,))
            plan = Plan([task], [omega], {TRAIN_OMEGA: True}, (len(omega),))
            for answer in self.run.ask(server_round, plan):
                omega = answer.arrays[0]
                trained.add(omega, self.settings.weight(answer))
        return trained.value() if trained else omega

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Join the first clients as unknown; place later ones by psi (section 4.4)."""
        state = self.state
        count = len(newcomers)
        late = len(state.models) > 1
        state.join(newcomers, np.full(count, UNKNOWN))
        state.representations += [np.zeros(0, np.float32)] * count
        state.reported = np.append(state.reported, np.zeros(count, np.int64))
        if late:
            rows = range(len(state.clients) - count, len(state.clients))
            for row, direction in self.ask_directions(server_round, rows):
                self.place(row, direction, state.sums)

    def place(self, row: int, direction: Vector, sums: Sequence[FloatArray]) -> None:
        """Let a client join the nearest cluster, or open a new one (section 4.4).

        ``sums`` decide which is nearest; they may be those before clients left.
        """
        state = self.state
        nearest = UNKNOWN
        if len(sums) > 1:
            found, cosine = nearest_direction(direction, sums[1:])
            nearest = found + 1
            # Section 4.4: join if the cosine is at least tau.
            if cosine >= self.settings.threshold:
                state.clusters[row] = nearest
                state.add_direction(nearest, direction)
                return
        state.open_cluster(row, direction, nearest)

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Test the served model; ask known clients whether their data changed."""
        state = self.state
        plan = super().plan_evaluate(server_round, test)
        if self.settings.service == "omega":
            tasks = [Task(task.client, (UNKNOWN,)) for task in plan.tasks]
            plan = Plan(tasks, plan.models)
        if self.settings.refresh == "never":
            return plan
        known = np.flatnonzero(state.known())
        reported = {state.clients[row]: int(state.reported[row]) for row in known}
        return ask_for_changes(plan, reported)

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Move clients whose data changed to the cluster nearest to their new psi."""
        if self.settings.refresh == "never":
            return
        state = self.state
        record = self.run.record
        reports = [result for result in results if result.report is not None]
        rows = state.rows(result.client for result in reports)
        before = state.clusters[rows]
        frozen = list(state.sums)
        for row, cluster in zip(rows, before, strict=True):
            state.add_direction(cluster, -state.representations[row])
        state.clusters[rows] = UNKNOWN
        for row, direction in self.take_directions(reports, server_round):
            self.place(row, direction, [*frozen, *state.sums[len(frozen) :]])
        record.drifted = len(reports)
        record.moved = int(np.count_nonzero(state.clusters[rows] != before))
        state.drop_empty()

"""FedDrift: a new model for each drifted client, merged with those close to it.

Jothimurugesan et al., "Federated Learning under Distributed Concept Drift" (AISTATS
2023; Algorithm 1). A participant receives all models, and trains the one with the
smallest loss, or a new one if that loss rose by more than delta. The server averages
each model's results, and merges models that fit each other's data as well as their own.
The data of a client belong to the model that it trained on them, for good. With
FedDrift-Eager (`form=eager`), for one new concept at a time, all who drift in a round
train one new model together.

Server keeps: the models, of which there are as many as there were drifts that nobody
shared; to which of them each client's data of each time step belong. Leaves the device:
the trained model (d floats), the loss of each model on its data of each (K^2 floats)
and their numbers (K), which one it trained, and since which round it has its data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from cfl_flower.clustering.algorithms import number_by_appearance
from cfl_flower.clustering.representations import parse_vector
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import (
    ClusteredStrategy,
    Disclosure,
    read_number,
    with_all_models,
)
from cfl_flower.errors import InvalidResultError
from cfl_flower.privacy.clipping import capped_counts, capped_losses
from cfl_flower.settings import Positive, require, settings
from cfl_flower.state import ClusteredState, StrategySettings
from cfl_flower.types import FloatArray, IntArray, Plan, Result, Task
from clients.families.choosing import CHOOSE
from clients.feddrift import ASSIGNED, NEW, OWN_CHOICE

MOST_UNUSED = 20
"""Number of models that nobody has now, but that stay in case their concept returns."""


@settings("strategy")
class FedDriftSettings(StrategySettings):
    """FedDrift's settings."""

    client: str = "clients.feddrift.FedDriftClient"
    delta: Positive = 0.5
    """The rise of the loss that is a drift, and the distance below which models
    merge."""
    form: Literal["original", "eager", "simplified"] = "original"
    """`eager` is FedDrift-Eager: clients choose before they train, and all who drift in
    a round train one new model. `simplified` is what FedCCFA's authors compare with:
    models are trained and measured on the round's data alone, a new one starts from the
    common first model, and a client that is not drawn in the round of a drift never
    notices it."""

    def check_secure_sums(self) -> None:
        """Require that no model is one client's."""
        ok = self.form == "eager"
        require(ok, "strategy.form", self.form, "eager with privacy.secure_sums=true")


@dataclass
class FedDriftState(ClusteredState):
    """FedDrift's state."""

    steps: IntArray = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """The time steps of clients, shape (s, 3): a client's row, the round in which it
    first trained on the data, and the model that these belong to."""


def model_distances(losses: FloatArray, samples: FloatArray) -> FloatArray:
    """Return the distances of K models, (K, K): Algorithm 1, line 12.

    They are the rise of the loss on each other's data. ``losses`` has m participants'
    losses, (m, K, K), at [., j, i] of model i on the data of model j; ``samples`` the
    counts of these data, (m, K). Models without data of any participant are infinitely
    far from all others.
    """
    totals = samples.sum(axis=0)
    measured = totals > 0
    shares = samples / np.where(measured, totals, 1)
    # L_ij: model i on the data of model j.
    on = np.einsum("cji,cj->ij", losses, shares)
    rise = on - np.diagonal(on)[:, None]
    # Line 12: max(L_ij - L_ii, L_ji - L_jj, 0).
    gaps: FloatArray = np.maximum(np.maximum(rise, rise.T), 0)
    gaps[~measured] = np.inf
    gaps[:, ~measured] = np.inf
    np.fill_diagonal(gaps, 0)
    return gaps


def merge_closest(gaps: FloatArray, delta: float) -> IntArray:
    """Merge the closest models below delta, by complete linkage: lines 13 to 16.

    ``gaps`` is (K, K). Returns the new number of each model, by first appearance.
    """
    gaps = gaps.copy()
    merged = np.arange(len(gaps))
    np.fill_diagonal(gaps, np.inf)
    while len(gaps) > 1:
        # Line 13: the closest pair.
        one, two = sorted(divmod(int(gaps.argmin()), len(gaps)))
        if not gaps[one, two] < delta:
            break
        # Complete linkage: the distance of the merged is the larger one.
        farthest = np.maximum(gaps[one], gaps[two])
        farthest[[one, two]] = np.inf
        gaps[one] = farthest
        gaps[:, one] = farthest
        gaps[two] = np.inf
        gaps[:, two] = np.inf
        merged[merged == two] = one
    return number_by_appearance(merged)


class ChoiceReport(NamedTuple):
    """What a participant reports: which model it trained, and how all models fit."""

    model: int
    """The number of the model that it trained, or `NEW`."""
    step: int
    """The round in which it first trained on its data."""
    losses: FloatArray
    """The loss of model i on its data of model j, at [j, i], shape (K, K)."""
    samples: FloatArray
    """The participant's number of samples of each model, shape (K,)."""


class FedDrift(ClusteredStrategy):
    """Algorithm 1, the server's part."""

    Settings = FedDriftSettings
    State = FedDriftState
    discloses = Disclosure(
        singly="keeps a drifted client's model as a new one",
        uncovered="losses and numbers of samples",
        in_sums="losses, and the number of the model that they chose",
    )

    def read_result(self, phase: str, result: Result) -> Result:
        """Read which model a participant trained, and its losses with all models."""
        if phase != "train":
            return result
        if self.is_eager:
            return replace(result, report=self._choices[result.client])
        return self.read_choice(result)

    @property
    def is_eager(self) -> bool:
        """Whether participants choose before they train, and drift together."""
        return bool(self.settings.form == "eager")

    def read_choice(self, result: Result) -> Result:
        """Return a result whose report is what a participant chose."""
        count = len(self.state.models)
        chosen = read_number(result, "chosen", range(NEW, count))
        step = read_number(result, "step", range(1, self.run.record.round + 1))
        losses = parse_vector(result.metrics.get("losses"), count**2, "losses")
        samples = parse_vector(result.metrics.get("counts"), count, "counts")
        if samples.min() < 0 or (chosen != NEW and samples[chosen] == 0):
            raise InvalidResultError("representation", "counts of no samples")
        # As this server keeps whose data are which model's, nobody has others.
        steps = self.state.steps
        (row,) = self.state.rows([result.client])
        own = [chosen, *steps[steps[:, 0] == row, 2]]
        if not np.isin(np.flatnonzero(samples), own).all():
            detail = "counts of data that belong to models that it never trained"
            raise InvalidResultError("representation", detail)
        if losses.min() < 0:
            raise InvalidResultError("representation", "losses below 0")
        table = losses.reshape(count, count).astype(float)
        report = ChoiceReport(chosen, step, table, samples.astype(float))
        return replace(result, report=report)

    def plan_train(self, server_round: int) -> Plan:
        """Send all models, and the models to which a client's earlier data belong."""
        plan = with_all_models(super().plan_train(server_round))
        steps = self.state.steps
        rows = self.state.rows(task.client for task in plan.tasks)
        tasks = []
        for task, row in zip(plan.tasks, rows, strict=True):
            earlier = steps[steps[:, 0] == row, 1:].tolist()
            tasks.append(replace(task, config={ASSIGNED: json.dumps(earlier)}))
        plan = replace(plan, tasks=tasks)
        return self.plan_after_choices(server_round, plan) if self.is_eager else plan

    def plan_after_choices(self, server_round: int, plan: Plan) -> Plan:
        """Let participants choose; each trains its model, or all who drifted a new one.

        It starts from the model that most of them had.
        """
        question = replace(plan, config={CHOOSE: True})
        answers = self.run.ask(server_round, replace(question, reply=()))
        answers = self.run.read("query", answers, self.read_choice)
        self._choices = {each.client: each.report for each in answers}
        drifted = [each.client for each in answers if each.report.model == NEW]
        models = plan.models
        if drifted:
            had = np.bincount(self.state.clusters[self.state.rows(drifted)])
            models = [*models, models[int(had.argmax())].copy()]
        # The last of the models is the new one.
        tasks = [
            Task(client, (choice.model % len(models),))
            for client, choice in self._choices.items()
        ]
        return replace(plan, tasks=tasks, models=models, config={OWN_CHOICE: True})

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average each model, merge those below delta, then add the new models."""
        state = self.state
        record = self.run.record
        rows = state.rows(result.client for result in results)
        reports: list[ChoiceReport] = [result.report for result in results]
        chosen = np.array([report.model for report in reports], np.int64)
        losses = np.stack([report.losses for report in reports])
        told = np.stack([report.samples for report in reports])
        samples = capped_counts(told, self.settings.weight_cap)
        old = np.flatnonzero(chosen != NEW)
        isolated = np.flatnonzero(chosen == NEW)
        record.moved = int(np.count_nonzero(state.clusters[rows] != chosen))
        record.drifted = len(isolated)
        for place in old.tolist():
            self.assign(rows[place], reports[place].step, chosen[place])
        kept = Results(results[place] for place in old.tolist())
        super().absorb_train(server_round, kept)
        # Lines 12 to 16.
        # As one's huge loss would decide alone which models merge.
        has = np.broadcast_to(samples[:, :, None] > 0, losses.shape)
        losses = capped_losses(losses, self.settings.weight_cap, has)
        merged = merge_closest(model_distances(losses, samples), self.settings.delta)
        record.reclustered = int(merged.max()) + 1 < len(state.models)
        if record.reclustered:
            self.merge(merged, samples.sum(axis=0))
        together = [isolated] if self.is_eager and len(isolated) else isolated[:, None]
        for places in together:
            for place in places.tolist():
                self.assign(rows[place], reports[place].step, len(state.models))
            mean = self.run.average([results[place] for place in places.tolist()])
            state.models = [*state.models, mean]
        self.forget_oldest()

    def forget_oldest(self) -> None:
        """Drop models that nobody has, but `MOST_UNUSED`: those of the oldest data."""
        state = self.state
        newest = np.zeros(len(state.models), np.int64)
        np.maximum.at(newest, state.steps[:, 2], state.steps[:, 1])
        unused = np.flatnonzero(state.sizes == 0)
        oldest = unused[np.argsort(newest[unused], kind="stable")][:-MOST_UNUSED]
        kept = np.setdiff1d(np.arange(len(newest)), oldest)
        state.models = [state.models[model] for model in kept.tolist()]
        state.clusters = np.searchsorted(kept, state.clusters)
        steps = state.steps[np.isin(state.steps[:, 2], kept)]
        steps[:, 2] = np.searchsorted(kept, steps[:, 2])
        state.steps = steps

    def assign(self, row: int, step: int, model: int) -> None:
        """Set a client's model, and the model to which data of a time step belong."""
        state = self.state
        state.clusters[row] = model
        others = (state.steps[:, :2] != [row, step]).any(axis=1)
        state.steps = np.vstack([state.steps[others], [row, step, model]])

    def merge(self, merged: IntArray, samples: FloatArray) -> None:
        """Replace models that merge by their mean, and renumber clusters and steps.

        ``samples`` are the participants' samples of each model, (K,).
        """
        state = self.state
        alone = np.bincount(merged)[merged] == 1
        mixing = np.zeros((int(merged.max()) + 1, len(merged)))
        mixing[merged, np.arange(len(merged))] = np.where(alone, 1.0, samples)
        state.mix(mixing)
        state.clusters = merged[state.clusters]
        state.steps[:, 2] = merged[state.steps[:, 2]]

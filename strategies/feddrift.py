"""FedDrift: a new model for each drifted client, merged with those that fit.

Jothimurugesan et al., "Federated Learning under Distributed Concept Drift" (AISTATS
2023; Algorithm 1). A participant receives all models, and trains the one with the
smallest loss, or a new one if that loss rose by more than delta. The server averages
each model's results, and merges models that fit each other's data as well as their own.

Server keeps: the models, of which there are as many as there were drifts that nobody
shared. Leaves the device: the trained model (d floats), the loss of each model on its
data (K floats), which one it trained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cfl_flower.clustering.algorithms import number_by_appearance
from cfl_flower.clustering.representations import parse_vector
from cfl_flower.communication.results import Results
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.settings import Positive, settings
from cfl_flower.types import FloatArray, IntArray, Plan, Result
from strategies.base import ClusteredStrategy, StrategySettings
from strategies.method import read_number, with_all_models

NEW = -1
"""What a client reports that started a model of its own."""


@settings("strategy")
class FedDriftSettings(StrategySettings):
    """FedDrift's settings."""

    delta: Positive = 0.5
    """The rise of the loss that is a drift, and the distance below which models
    merge."""


def model_distances(
    losses: FloatArray, chosen: IntArray, samples: FloatArray
) -> FloatArray:
    """Return how badly models do on each other's data, (K, K): Algorithm 1, line 12.

    ``losses`` are each model's on each participant's data, (m, K); ``chosen`` is what
    each trained, negative for a new one. Infinite for a model that nobody trained.
    """
    count = losses.shape[1]
    shares = np.where(chosen == np.arange(count)[:, None], samples, 0).astype(float)
    totals = shares.sum(axis=1)
    trained = totals > 0
    # L_ij: model i on the data of those who trained j.
    on = losses.T @ (shares / np.where(trained, totals, 1)[:, None]).T
    rise = on - np.diagonal(on)[:, None]
    gaps: FloatArray = np.maximum(np.maximum(rise, rise.T), 0)
    gaps[~trained] = gaps[:, ~trained] = np.inf
    np.fill_diagonal(gaps, 0)
    return gaps


def merge_closest(gaps: FloatArray, delta: float) -> IntArray:
    """Merge the closest models below delta, by complete linkage: lines 13 to 16.

    ``gaps`` is (K, K). Returns what each model becomes, numbered by appearance.
    """
    gaps, merged = gaps.copy(), np.arange(len(gaps))
    np.fill_diagonal(gaps, np.inf)
    while len(gaps) > 1:
        one, two = sorted(divmod(int(gaps.argmin()), len(gaps)))
        if not gaps[one, two] < delta:
            break
        farthest = np.maximum(gaps[one], gaps[two])
        gaps[one], gaps[:, one] = farthest, farthest
        gaps[one, one] = np.inf
        gaps[two], gaps[:, two] = np.inf, np.inf
        merged[merged == two] = one
    return number_by_appearance(merged)


class ChoiceReport(NamedTuple):
    """Which model a participant trained, or `NEW`; its loss with each, shape (K,)."""

    model: int
    losses: FloatArray


class FedDrift(ClusteredStrategy):
    """Algorithm 1, the server's part."""

    Settings = FedDriftSettings

    def read_result(self, phase: str, result: Result) -> Result:
        """Read which model a participant trained, and what it lost with each."""
        if phase != "train":
            return result
        count = len(self.state.models)
        chosen = read_number(result, "chosen", range(NEW, count))
        losses = parse_vector(result.metrics.get("losses"), count, "losses")
        return replace(result, report=ChoiceReport(chosen, losses.astype(float)))

    def plan_train(self, round: int) -> Plan:
        """Send all models to the participants."""
        return with_all_models(super().plan_train(round))

    def absorb_train(self, round: int, results: Results) -> None:
        """Average per model, merge what fits, then take in the new models."""
        if not results:
            return
        state, record = self.state, self.record
        rows = self.rows(result.client for result in results)
        chosen = np.array([result.report.model for result in results], np.int64)
        losses = np.stack([result.report.losses for result in results])
        samples = np.array([float(result.num_examples) for result in results])
        old, isolated = np.flatnonzero(chosen != NEW), np.flatnonzero(chosen == NEW)
        record.moved = int(np.count_nonzero(state.clusters[rows] != chosen))
        record.drifted = len(isolated)
        state.clusters[rows[old]] = chosen[old]
        kept = Results(results[place] for place in old.tolist())
        super().absorb_train(round, kept)
        gaps = model_distances(losses, chosen, samples)
        merged = merge_closest(gaps, self.settings.delta)
        record.reclustered = int(merged.max()) + 1 < len(state.models)
        if record.reclustered:
            count = len(state.models)
            trained = np.bincount(chosen[old], samples[old], count).astype(float)
            self.merge(merged, trained)
        for place in isolated.tolist():
            state.clusters[rows[place]] = len(state.models)
            # A copy: what came is a view of all that a worker sent.
            state.models = [*state.models, results[place].arrays[0].copy()]

    def merge(self, merged: IntArray, samples: FloatArray) -> None:
        """Replace models that merge by their mean, and renumber everyone's.

        ``samples`` are those that each model was trained on in this round, (K,).
        """
        state, models = self.state, []
        for group in range(int(merged.max()) + 1):
            members = np.flatnonzero(merged == group).tolist()
            parts = [state.models[member] for member in members]
            alone = len(parts) == 1
            models.append(parts[0] if alone else mean_model(parts, samples[members]))
        state.models, state.clusters = models, merged[state.clusters]

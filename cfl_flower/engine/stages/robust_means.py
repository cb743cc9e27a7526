"""What one participant can change: `strategy.weight_cap` and `strategy.robust`.

Those who trained the same model are compared with each other. In the place of each
one's model the method finds a shortened one, or what a robust rule makes of all: the
mean of these, with whatever weights, is that again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    Bulyan,
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    Krum,
    MultiKrum,
)

from cfl_flower.communication.results import Results
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.engine.uploads_state import AsynchronousState
from cfl_flower.privacy.clipping import FEWEST, nearest, shortened, update_length
from cfl_flower.run_config import RunConfig
from cfl_flower.settings import require
from cfl_flower.types import ClientId, Plan, Result, Task, Vector

RULES: Mapping[str, Callable[[int, int], FedAvg]] = {
    # A quarter more, as a share of the results is rounded down to a number of them.
    "median": lambda count, liars: FedMedian(),
    "trimmed": lambda count, liars: FedTrimmedAvg(beta=(liars + 0.25) / count),
    "krum": lambda count, liars: Krum(num_malicious_nodes=liars),
    "multikrum": lambda count, liars: MultiKrum(
        num_malicious_nodes=liars, num_nodes_to_select=count - liars
    ),
    "bulyan": lambda count, liars: Bulyan(
        num_malicious_nodes=min(liars, (count - 3) // 4)
    ),
}
"""Flower's strategy for a number of results, of which some are malicious."""

FEWEST_OF_BULYAN = 7
"""Those of Bulyan, 4 f + 3."""

Groups = dict[tuple[int, int | None], list[int]]
"""The places of results with a version of the same model, or of none, by the array."""


def robust_update(
    rule: str, updates: Sequence[Vector], weights: Sequence[float], share: float
) -> Vector:
    """Return what a rule makes of n updates of shape (d,); Flower's own functions.

    ``share`` of them, at least one and always a minority, may be malicious. Krum's
    kind use ``weights``, (n,).
    """
    count = len(updates)
    liars = min(max(1, round(share * count)), (count - 1) // 2)
    strategy = RULES[rule](count, liars)
    replies = []
    for place, (update, weight) in enumerate(zip(updates, weights, strict=True)):
        told = MetricRecord({"num-examples": weight})
        content = RecordDict({"arrays": ArrayRecord([update]), "metrics": told})
        replies.append(Message(content, dst_node_id=place, message_type="train"))
    arrays, _ = strategy.aggregate_train(0, replies)
    assert arrays is not None
    return arrays.to_numpy_ndarrays()[0].astype(np.float32)


class RobustMeans(Stage):
    """Limits weights, and what a malicious participant's model can change."""

    phases = ("query", "train")

    @classmethod
    def check(cls, config: RunConfig, method: type[Any]) -> None:
        """Refuse a method that uses single models for more than their mean."""
        rule = config.strategy.robust
        name = f"strategy={config.names['strategy']}"
        sent = method.discloses
        why = f"whose server {sent.singly}" if sent is not None and sent.singly else ""
        if issubclass(method.State, AsynchronousState):
            why = "which takes in models one by one"
        ok = rule in ("none", "clip") or not why
        require(ok, "strategy.robust", rule, f"none or clip with {name}, {why}")

    def plan(self, plan: Plan) -> Plan:
        """Let results come one by one if they are compared; else limit their weights.

        Whoever adds up, or multiplies behind a mask, must know the limit before: it is
        of the numbers of samples that clients have told last.
        """
        spec = plan.sum_spec
        settings = self.config.strategy
        if self.context.phase != "train" or spec is None:
            return plan
        if settings.robust != "none" and not spec.masked:
            return replace(plan, sum_spec=None)
        typical = self.context.state.typical_count
        if settings.weight_cap is None or not typical:
            return plan
        most = settings.weight_cap * typical
        # Only an app of one's own has weights that are no whole numbers.
        most = max(1, int(most)) if isinstance(typical, int) else most
        return replace(plan, sum_spec=replace(spec, most=most))

    def receive(self, plan: Plan, results: Results) -> Results:
        """Limit what came one by one, and add it up if that was planned."""
        context = self.context
        state = context.state
        counts = [result.num_examples for result in results if result.num_examples]
        # Nodes with an app of their own say 1 until they train.
        first = context.phase == "query" and state.typical_count <= 1
        if counts and (first or context.phase == "train"):
            kind = np.asarray(counts).dtype.type
            state.typical_count = kind(np.median(counts)).item()
        if context.phase != "train" or not results:
            return results
        spec = context.sent.sum_spec
        if spec is not None:
            rows = [r.client for r in results if r.num_examples > spec.most]
            self._note("capped", rows if spec.by_samples else [])
            return results
        settings = self.config.strategy
        found = list(results)
        if settings.weighting == "samples" and settings.weight_cap is not None:
            found = self._cap(found)
        if settings.robust != "none":
            found = self._bound(found)
        results = results.with_results(found)
        if plan.sum_spec is not None:
            results = self.delivery.add_up(plan, results)
        return results

    def _cap(self, results: list[Result]) -> list[Result]:
        """Limit each one's number of samples by the median of its group."""
        cap = self.config.strategy.weight_cap
        counts = np.array([result.num_examples for result in results])
        if counts.max() <= cap * counts.min():
            return results
        most = {}
        for (place, _), rows in group_results(self.context.sent, results).items():
            # A result has one number of samples, however many arrays it has.
            if place > 0:
                continue
            # A few cannot be outvoted: they are compared with all participants.
            among = counts[rows] if len(rows) >= FEWEST else counts
            limit = cap * float(np.median(among))
            limit = max(1, int(limit)) if counts.dtype.kind == "i" else limit
            most.update(dict.fromkeys(rows, limit))
        over = [row for row in most if counts[row] > most[row]]
        self._note("capped", [results[row].client for row in sorted(over)])
        for row in over:
            results[row] = replace(results[row], num_examples=most[row])
        return results

    def _bound(self, results: list[Result]) -> list[Result]:
        """Shorten long updates, or put a rule's model in the place of each."""
        plan = self.context.sent
        settings = self.config.strategy
        rule = settings.robust
        groups = group_results(plan, results)
        # A weight above the median moves a mean as a longer update does.
        weights = [settings.weight(result) for result in results]
        heavy = np.maximum(np.array(weights) / np.median(weights), 1.0).tolist()
        # What no model was sent for is weighed by the method itself.
        places = [(at, row) for at, rows in groups.items() for row in rows]
        factors = {
            (place, row): 1.0 if model is None else heavy[row]
            for (place, model), row in places
        }
        lengths = {
            (place, row): factors[place, row]
            * update_length(results[row].arrays[place], started_from(plan, model))
            for (place, model), row in places
        }
        arrays = [list(result.arrays) for result in results]
        clipped = set[ClientId]()
        fewest = FEWEST_OF_BULYAN if rule == "bulyan" else FEWEST
        for (place, model), rows in groups.items():
            received = started_from(plan, model)
            if rule != "clip" and model is not None and len(rows) >= fewest:
                updates = [arrays[row][place] - received for row in rows]
                own = [weights[row] for row in rows]
                update = robust_update(rule, updates, own, settings.robust_share)
                for row in rows:
                    arrays[row][place] = received + update
                continue
            # A cluster may have more liars than others: all participants count, too.
            same = [each for (at, _), each in lengths.items() if at == place]
            own = [lengths[place, row] for row in rows]
            typical = float(min(np.median(own), np.median(same)))
            bound = settings.robust_length * typical
            for row in rows:
                if lengths[place, row] > bound:
                    clipped.add(results[row].client)
                    limit = bound / factors[place, row]
                    arrays[row][place] = shortened(arrays[row][place], received, limit)
        self._note("clipped", [r.client for r in results if r.client in clipped])
        pairs = zip(results, arrays, strict=True)
        return [replace(result, arrays=own) for result, own in pairs]

    def _note(self, name: str, clients: list[ClientId]) -> None:
        """Say in the round's record whom a limit changed."""
        if clients:
            self.context.record.measures[name] = clients


def group_results(plan: Plan, results: Sequence[Result]) -> Groups:
    """Return which results have versions of the same model, array by array."""
    tasks = {task.client: task for task in plan.tasks}
    groups: Groups = {}
    for row, result in enumerate(results):
        task = tasks[result.client]
        for place, array in enumerate(result.arrays):
            model = origin(plan, task, result, array)
            groups.setdefault((place, model), []).append(row)
    return groups


def started_from(plan: Plan, model: int | None) -> Vector:
    """Return what an array is compared with: the plan's model, 0 if it is of none."""
    return np.zeros(1, np.float32) if model is None else plan.models[model]


def origin(plan: Plan, task: Task, result: Result, array: Vector) -> int | None:
    """Return which of the plan's models an array is a new version of.

    The one that its client chose, if it says so, or the nearest that it received.
    """
    chosen = result.metrics.get("cluster")
    if isinstance(chosen, int) and chosen in task.models:
        return chosen if len(plan.models[chosen]) == len(array) else None
    place = nearest(array, [plan.models[index] for index in task.models])
    return None if place is None else task.models[place]

"""What `privacy.secure_sums` adds to a synchronous method's rounds, whichever it is.

The participants of a round who train the same model are a group, and the server finds
the sum of each group alone (`secure.server`). A method that asked for single results
finds its group's mean in the place of each.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cfl_flower.client.model_privacy import BASES, BOUNDS
from cfl_flower.clustering.representations import digest
from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.partial_sums import EMPTY, bases_of, versions
from cfl_flower.communication.results import Results
from cfl_flower.engine.stages.stage import Stage, check_hidden
from cfl_flower.privacy.clipping import shortened, update_length
from cfl_flower.run_config import RunConfig
from cfl_flower.secure.server import large_enough, open_sums, with_keys
from cfl_flower.settings import require
from cfl_flower.types import (
    UPDATE_LENGTHS,
    Failure,
    Plan,
    Result,
    SumSpec,
    Vector,
)

log = logging.getLogger(__name__)

NO_KEY = "its device is not there, or reports another key than its first, or another's"
"""Why a participant cannot be in a group of real devices."""


CLUSTERED = "fielding, stocfl, ifca, fesem and feddrift"
"""The published methods with clusters that go with sums."""


class SecureSums(Stage):
    """Forms the groups of a round, and opens their sums."""

    shows_models = False
    # A cluster that lost too many devices costs itself the round, not the run.
    expects_results = False

    @classmethod
    def applies(cls, config: RunConfig, simulated: bool = True) -> bool:
        """Return whether single results are hidden."""
        return config.privacy.secure_sums

    @classmethod
    def check(cls, config: RunConfig, method: type[Any]) -> None:
        """Refuse what needs single results."""
        check_hidden(config, "privacy.secure_sums")
        sent = method.discloses
        name = f"strategy={config.names['strategy']}"
        why = ""
        if sent is None:
            why = "which does not say (`discloses`) that each cluster's sum is enough"
        elif sent.singly and not sent.in_sums:
            why = f"whose server {sent.singly}"
        allowed = f"false with {name}, {why}; of methods with clusters, {CLUSTERED} do"
        require(not why, "privacy.secure_sums", "true", allowed)
        rule = config.strategy.robust
        why = "which hides single models: nobody can compare them"
        allowed = f"none or clip with privacy.secure_sums, {why}"
        require(rule in ("none", "clip"), "strategy.robust", rule, allowed)
        least = config.privacy.least_members
        ok = config.participants >= least
        allowed = f"at most participants={config.participants}"
        require(ok, "privacy.least_members", least, allowed)
        config.strategy.check_secure_sums()

    def plan(self, plan: Plan) -> Plan:
        """Return a plan whose results are added up, without groups that are too small.

        Real devices receive the public keys of their groups.
        """
        if not any(plan.reply):
            return plan
        by_samples = self.config.strategy.weighting == "samples"
        spec = plan.sum_spec or SumSpec(bases_of(plan), by_samples)
        spec = replace(spec, masked=True)
        asked = plan.tasks
        record = self.context.record
        fleet = self.context.fleet
        keys = None if fleet.simulated else fleet.keys
        if keys is not None:
            asked = [task for task in plan.tasks if task.client in keys]
            absent = [task.client for task in plan.tasks if task.client not in keys]
            record.failures += [Failure(c, "train", "node", NO_KEY) for c in absent]
            # Groups are in the order of keys, in which devices have their places.
            asked.sort(key=lambda task: keys[task.client])
        least = self.config.privacy.least_members
        tasks = large_enough(asked, spec, least)
        record.measures["left_out"] = len(asked) - len(tasks)
        if not tasks:
            log.warning("round %s: no sum of %s participants", record.round, least)
        if keys is not None:
            tasks = with_keys(tasks, spec, keys)
        models = [self._other(model) for model in plan.models]
        return replace(plan, tasks=tasks, models=models, sum_spec=spec)

    def _other(self, model: Vector) -> Vector:
        """Return a model; one whose sum was lost as another one, by its last bits.

        Its devices have signed who was to be in that sum, and never sign others for the
        same model: its cluster could not go on without one of them.
        """
        lost = self.context.state.lost_sums
        while lost and digest(model) in lost:
            model = np.nextafter(model, np.float32(np.inf))
        return model

    def receive(self, plan: Plan, results: Results) -> Results:
        """Leave the sums that could be opened, and the results that are in them."""
        context = self.context
        sent = context.sent
        if sent.sum_spec is None:
            return results
        ask = None
        if not context.fleet.simulated:
            # The same clients again, in the same round: no plan of a method's.
            ask = partial(self.delivery.query, context.number)
        least = self.config.privacy.least_members
        kept, failures, lost = open_sums(sent, results, least, ask)
        context.record.failures += failures
        if ask is not None:
            models = {digest(sent.models[v[1]]) for v in lost if sent.reply[v[0]]}
            state = context.state
            state.lost_sums = sorted({*state.lost_sums, *models})
        return kept


class GroupMeans(Stage):
    """Gives a method that did not ask for sums its groups' means.

    Any weighted mean of a group is that mean again.
    """

    shows_models = False

    @classmethod
    def applies(cls, config: RunConfig, simulated: bool = True) -> bool:
        """Return whether single results are hidden."""
        return config.privacy.secure_sums

    def receive(self, plan: Plan, results: Results) -> Results:
        """Put each group's mean in the place of its members' models."""
        sent = self.context.sent
        spec = sent.sum_spec
        if spec is None or plan.sum_spec is not None:
            return results
        tasks = {task.client: task for task in sent.tasks}
        means = {version: total.mean() for version, total in results.sums.items()}
        found = []
        for result in results:
            places = versions(tasks[result.client], spec)
            # A method with nothing to share sends an array of no numbers.
            arrays = [means.get(version, EMPTY) for version in places]
            found.append(replace(result, arrays=arrays))
        return results.with_results(found)


class SumBounds(Stage):
    """Sends the bounds of ``strategy.robust=clip``, and applies them to means.

    Devices shorten their own updates to a bound that the server sends, and tell how
    long they were. The bound is a multiple of the median length of the last round. A
    device that does not shorten its own stays behind its mask, so each mean is
    shortened, too.
    """

    @classmethod
    def applies(cls, config: RunConfig, simulated: bool = True) -> bool:
        """Return whether nobody sees the models whose updates are limited."""
        return config.privacy.secure_sums and config.strategy.robust != "none"

    def plan(self, plan: Plan) -> Plan:
        """Name the bounds; before any length is known, updates change nothing."""
        typical = self.context.state.typical_lengths or [0.0] * len(plan.reply)
        multiple = self.config.strategy.robust_length
        self._bounds = [multiple * length for length in typical]
        bases = ",".join(map(str, bases_of(plan)))
        bounds = ",".join(map(str, self._bounds))
        return replace(plan, config={**plan.config, BASES: bases, BOUNDS: bounds})

    def receive(self, plan: Plan, results: Results) -> Results:
        """Shorten means that are too long, and note the lengths for the next round."""
        for (array, model), total in results.sums.items():
            received = self.context.sent.models[model]
            mean = total.mean()
            if update_length(mean, received) > self._bounds[array]:
                single = ExactSum.empty(len(mean))
                single.add(shortened(mean, received, self._bounds[array]), total.weight)
                results.sums[array, model] = single
        told = [read_lengths(result, len(plan.reply)) for result in results]
        lengths = [each for each in told if each is not None]
        if lengths:
            typical = np.median(np.stack(lengths), axis=0)
            self.context.state.typical_lengths = typical.tolist()
        return results


def read_lengths(result: Result, count: int) -> Vector | None:
    """Return how long a participant says its updates were; None if it does not."""
    data = result.telemetry.get(UPDATE_LENGTHS)
    if not isinstance(data, bytes) or len(data) != 4 * count:
        return None
    lengths = np.frombuffer(data, np.float32)
    return lengths if np.isfinite(lengths).all() and (lengths >= 0).all() else None

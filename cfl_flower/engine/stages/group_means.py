"""The mean of its group in the place of each participant's model.

With `privacy.secure_sums` a method that asked for single results finds means: whatever
it averages with its own weights is that mean again.
"""

from __future__ import annotations

from dataclasses import replace

from cfl_flower.communication.partial_sums import EMPTY, versions
from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.types import Plan


class GroupMeans(Stage):
    """Gives a method that did not ask for sums its groups' means."""

    def receive(self, context: RoundContext, plan: Plan, results: Results) -> Results:
        """Put each group's mean in the place of its members' models."""
        spec = context.sent.sum_spec
        if context.phase != "train" or spec is None or plan.sum_spec is not None:
            return results
        tasks = {task.client: task for task in context.sent.tasks}
        means = {version: total.mean() for version, total in results.sums.items()}
        found = []
        for result in results:
            places = versions(tasks[result.client], spec)
            # A method with nothing to share sends an array of no numbers.
            arrays = [means.get(version, EMPTY) for version in places]
            found.append(replace(result, arrays=arrays))
        return results.with_results(found)

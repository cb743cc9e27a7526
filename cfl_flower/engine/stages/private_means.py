"""Central differential privacy: a method sees noisy means and no participant's model.

Those who trained the same model are one sum of clipped updates, which gets noise once.
In the place of each one's model the method then finds the model that the noisy mean
makes: whatever it does with them, and whichever of them it averages with whatever
weights, comes from the noisy means alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cfl_flower.clustering.representations import digest
from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.partial_sums import bases_of, groups_of, versions
from cfl_flower.communication.results import Results
from cfl_flower.privacy.clipping import DoubleVector, clipped_update
from cfl_flower.privacy.settings import LocalPrivacy
from cfl_flower.types import Plan, SumSpec, Vector, Version

Draw = Callable[[str], np.random.Generator]
"""Returns the generator of a purpose, another one for each."""


def noisy_mean(
    received: Vector, total: DoubleVector, count: int, scale: float, draw: Draw
) -> Vector:
    """Return the model that a noisy mean of updates makes of the received one, (d,).

    ``total`` is the sum of ``count`` clipped updates, (d,); ``scale`` the standard
    deviation of the noise on each of its numbers.
    """
    # By the content: a round that is repeated with other results gets other noise.
    noise = draw(digest(total)).normal(0.0, scale, len(total))
    return (received + (total + noise) / count).astype(np.float32)


def release_means(
    results: Results, plan: Plan, privacy: LocalPrivacy, draw: Draw
) -> Results:
    """Return noisy means in the place of all that a round's participants sent.

    An update is clipped again here: a participant counts for no more than C =
    ``privacy.clip``, whatever it sends. Only where workers have added up already
    (`SumSpec`) there is nothing left to clip.
    """
    scale = privacy.scale
    if plan.sum_spec is not None:
        for (array, base), found in results.sums.items():
            received = plan.models[base]
            count = found.terms
            total = count * (found.mean().astype(np.float64) - received)
            purpose = _purpose(draw, array, base)
            mean = noisy_mean(received, total, count, scale, purpose)
            single = ExactSum.empty(len(mean))
            single.add(mean, 1)
            results.sums[array, base] = single
        return results
    tasks = {task.client: task for task in plan.tasks}
    spec = SumSpec(bases_of(plan), False)
    arrays = {result.client: result.arrays for result in results}
    groups = groups_of((tasks[client] for client in arrays), spec)
    means: dict[Version, Vector] = {}
    for (array, base), clients in groups.items():
        received = plan.models[base]
        sent = [arrays[client][array] for client in clients]
        updates = [clipped_update(each, received, privacy.clip) for each in sent]
        total = np.sum(updates, axis=0)
        purpose = _purpose(draw, array, base)
        means[array, base] = noisy_mean(received, total, len(clients), scale, purpose)
    return results.with_results(
        replace(each, arrays=[means[v] for v in versions(tasks[each.client], spec)])
        for each in results
    )


def _purpose(draw: Draw, array: int, base: int) -> Draw:
    """Return the generators of one mean."""
    return lambda content: draw(f"privacy/{array}/{base}/{content}")

"""From participants' results to a cluster's next model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from cfl_flower.clustering.representations import digest
from cfl_flower.engine.context import RoundContext
from cfl_flower.learning.aggregation import Memory, QFedAvg, mean_model
from cfl_flower.models import FlatModel, build_model, initial_vector
from cfl_flower.privacy.clipping import capped_losses
from cfl_flower.types import Result, Vector


class ServerStep:
    """Means as `strategy.weighting` says, and the server optimiser's steps."""

    def __init__(self, context: RoundContext) -> None:
        self._context = context
        self._before: dict[str, Memory] = {}

    def initial_model(self, seed: int | None = None) -> Vector:
        """Return the common initial model, (d,), or one with a seed of its own."""
        config = self._context.config
        dataset = config.dataset
        seed = config.seed if seed is None else seed
        return initial_vector(config.model, dataset.shape, dataset.classes, seed)

    @cached_property
    def network(self) -> FlatModel:
        """The run's network, to look at its layers and how its vector is divided."""
        config = self._context.config
        dataset = config.dataset
        return build_model(config.model, dataset.shape, dataset.classes, config.seed)

    @cached_property
    def weights(self) -> int:
        """The number of the network's trainable weights, without running statistics."""
        return len(self.network.weights)

    def weight(self, result: Result) -> float:
        """Return the weight of a result in a mean, as configured."""
        by_samples = self._context.config.strategy.weighting == "samples"
        return float(result.num_examples) if by_samples else 1.0

    def average(self, results: Sequence[Result]) -> Vector:
        """Return the mean of the results' first arrays, weighted as configured."""
        arrays = [result.arrays[0] for result in results]
        return mean_model(arrays, [self.weight(result) for result in results])

    def next_model(self, model: Vector, results: Sequence[Result]) -> Vector:
        """Return a cluster's next model, through the server optimiser."""
        optimizer = self._context.config.server_optimizer
        if not isinstance(optimizer, QFedAvg):
            return self.step(model, self.average(results))
        arrays = [result.arrays[0] for result in results]
        losses = np.array([float(r.telemetry["start_loss"]) for r in results])
        losses = capped_losses(losses, self._context.config.strategy.weight_cap)
        return optimizer.combine(model, arrays, losses, self.weights)

    def step(self, model: Vector, mean: Vector, absent: int = 0) -> Vector:
        """Return the server optimiser's step from a model to its results' mean, (d,).

        What it remembers goes by the model's content: it stays with a model whose
        number changes. One that was made of others, after their steps, has theirs by
        `ClusteredState.hand_on`; any other begins anew. ``absent`` counts weights of
        the network that are not in the model: a personal classifier.
        """
        optimizer = self._context.config.server_optimizer
        if not optimizer.remembers:
            return mean
        memory = self._before.get(digest(model), [])
        fresh, memory = optimizer.step(model, mean, self.weights - absent, memory)
        self._context.state.memories[digest(fresh)] = memory
        return fresh

    def begin(self) -> None:
        """Begin a round's steps, which are from what was remembered before them."""
        self._before = dict(self._context.state.memories)

    def keep_memories(self) -> None:
        """Forget models that there are no more, if the round had any steps."""
        state = self._context.state
        fresh = state.memories.keys() - self._before
        if fresh:
            alive = set(map(digest, state.models))
            # The steps of a part of a model, such as its extractor, are not of a whole.
            kept = alive if fresh & alive else fresh
            known = state.memories.items()
            state.memories = {name: each for name, each in known if name in kept}
        self._before = state.memories

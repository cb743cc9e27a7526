"""What a method may use of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from cfl_flower.clustering.representations import digest
from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.delivery import Delivery
from cfl_flower.engine.participants import Participants
from cfl_flower.errors import ConfigError
from cfl_flower.learning.aggregation import Average, Memory, QFedAvg, mean_model
from cfl_flower.models import FlatModel, model_of
from cfl_flower.privacy.clipping import capped_losses
from cfl_flower.runs.record import RoundRecord
from cfl_flower.seeding import generator
from cfl_flower.types import START_LOSS, BoolArray, IntArray, Plan, Result, Vector

AskInParts: TypeAlias = Callable[[int, Plan], Iterator[Results]]
"""Asks clients what a plan says in a round, and yields answers by portions."""


class RunServices:
    """A method's run: its configuration, generators, questions, participants, steps."""

    def __init__(
        self,
        context: RoundContext,
        participants: Participants,
        delivery: Delivery,
        ask_in_parts: AskInParts,
    ) -> None:
        self._context = context
        self._before: dict[str, Memory] = {}
        self.config = context.config
        self.timeline = context.timeline
        """The true concept of every client, where the data are simulated."""
        self.participants = participants
        """Draws who takes part in a round's training."""
        self.ask_in_parts = ask_in_parts
        """Asks as `ask` does, and yields the answers portion by portion: those of a
        portion need not be kept until the next one comes."""
        self.read = delivery.read
        """Returns results as a function, or the method, reads them, without refused
        ones, which are counted as failures."""
        self.require_any = delivery.require_any
        """Raises `NoValidResultError`, which ends the run, if nothing is valid."""

    @property
    def record(self) -> RoundRecord:
        """The round's line in rounds.jsonl, with `measures` for a method's own."""
        return self._context.record

    def rng(self, purpose: str, server_round: int) -> np.random.Generator:
        """Return the server's generator of a purpose and round."""
        return generator(self.config.seed, purpose, server_round)

    def true_concepts(self, server_round: int) -> IntArray | None:
        """Return the true concept of each client of the state, where it is known."""
        if self.timeline is None:
            return None
        clients = np.array(self._context.state.clients, np.int64)
        return self.timeline.concepts(server_round)[clients]

    def present(self) -> BoolArray:
        """Return which clients of the state have not left, shape (n,)."""
        return self._context.there(self._context.state.clients)

    # Questions to clients ------------------------------------------------------------

    def ask(self, server_round: int, plan: Plan) -> list[Result]:
        """Ask clients something before a round's training, and wait for the answers.

        A device takes seconds for each message: ask what cannot go with the round's
        own. Large answers come in portions. The callbacks of the last round are done
        when this returns.
        """
        parts = self.ask_in_parts(server_round, plan)
        return [each for part in parts for each in part]

    # Models --------------------------------------------------------------------------

    def initial_model(self, seed: int | None = None) -> Vector:
        """Return the common initial model, (d,), or one with a seed of its own."""
        return model_of(self._context.config, seed).to_vector()

    def initial_models(self, count: int) -> list[Vector]:
        """Return initial models of several clusters, each with a seed of its own."""
        draw = self.rng("cluster-models", 0)
        seeds = draw.integers(2**31, size=count).tolist()
        models = [self.initial_model(seed) for seed in seeds]
        if count > 1 and all(np.array_equal(each, models[0]) for each in models):
            raise ConfigError(
                "the clusters would begin from equal models, and stay so; let the "
                "network, or reseeded, draw other weights for each seed, with torch's "
                "generator as it is"
            )
        return models

    @cached_property
    def network(self) -> FlatModel:
        """The run's network, to look at its layers and how its vector is divided."""
        return model_of(self._context.config)

    @cached_property
    def weights(self) -> int:
        """The number of the network's trainable weights, without running statistics."""
        return len(self.network.weights)

    def average(self, results: Sequence[Result]) -> Vector:
        """Return the mean of the results' first arrays, weighted as configured."""
        arrays = [result.arrays[0] for result in results]
        weights = map(self._context.config.strategy.weight, results)
        return mean_model(arrays, list(weights))

    def step(self, model: Vector, mean: Vector, absent: int = 0) -> Vector:
        """Return the server optimiser's step from a model to its results' mean, (d,).

        What it remembers goes by the model's content: it stays with a model whose
        number changes. One that was made of others, after their steps, has theirs by
        `ClusteredState.hand_on`; any other begins anew. ``absent`` counts weights of
        the network that are not in the model: a personal classifier.
        """
        optimizer = self._context.config.server_optimizer
        if type(optimizer) is Average:
            return mean
        memory = self._before.get(digest(model), [])
        fresh, memory = optimizer.step(model, mean, self.weights - absent, memory)
        arrays = isinstance(memory, list) and all(
            isinstance(each, np.ndarray) for each in memory
        )
        if not arrays:
            kind = type(optimizer).__name__
            given = f"{kind}.step remembers {memory!r:.60}"
            raise TypeError(f"{given}, not a list of arrays, [] for nothing")
        self._context.state.memories[digest(fresh)] = memory
        return fresh

    def average_clusters(self, clusters: IntArray, results: Sequence[Result]) -> None:
        """Make each cluster's next model from its results; without any it stays.

        ``clusters`` has the cluster of each result, shape (m,).
        """
        config = self._context.config
        optimizer = config.server_optimizer
        models = self._context.state.models
        for cluster in np.unique(clusters):
            members = [results[int(i)] for i in np.flatnonzero(clusters == cluster)]
            model = models[cluster]
            if isinstance(optimizer, QFedAvg):
                arrays = [result.arrays[0] for result in members]
                losses = np.array([float(r.telemetry[START_LOSS]) for r in members])
                losses = capped_losses(losses, config.strategy.weight_cap)
                models[cluster] = optimizer.combine(model, arrays, losses, self.weights)
            else:
                models[cluster] = self.step(model, self.average(members))

    # Around a round's steps, for the engine ------------------------------------------

    def begin_steps(self) -> None:
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

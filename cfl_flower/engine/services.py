"""What a method may use of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.delivery import Delivery, Reader
from cfl_flower.engine.participants import Participants
from cfl_flower.engine.server_step import ServerStep
from cfl_flower.models import FlatModel
from cfl_flower.runs.record import RoundRecord
from cfl_flower.seeding import generator
from cfl_flower.types import IntArray, Plan, Result, Vector

AskInParts: TypeAlias = Callable[[int, Plan], Iterator[Results]]
"""Asks clients what a plan says in a round, and yields answers by portions."""


class RunServices:
    """A method's run: its configuration, generators, questions, participants, steps."""

    def __init__(
        self,
        context: RoundContext,
        participants: Participants,
        delivery: Delivery,
        step: ServerStep,
        ask_in_parts: AskInParts,
    ) -> None:
        self._context = context
        self._delivery = delivery
        self._step = step
        self._ask_in_parts = ask_in_parts
        self.config = context.config
        self.timeline = context.timeline
        """The true concept of every client, where the data are simulated."""
        self.participants = participants
        """Draws who takes part in a round's training."""

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

    # Questions to clients ------------------------------------------------------------

    def ask(self, server_round: int, plan: Plan) -> list[Result]:
        """Ask clients something before a round's training, and wait for the answers.

        A device takes seconds for each message: ask what cannot go with the round's
        own. Large answers come in portions. The callbacks of the last round are done
        when this returns.
        """
        parts = self._ask_in_parts(server_round, plan)
        return [each for part in parts for each in part]

    def ask_in_parts(self, server_round: int, plan: Plan) -> Iterator[Results]:
        """Ask as `ask` does, and yield the answers portion by portion.

        Those of a portion need not be kept until the next one comes.
        """
        return self._ask_in_parts(server_round, plan)

    def read(
        self, phase: str, results: Iterable[Result], read: Reader | None = None
    ) -> list[Result]:
        """Return results as `read`, or the method, reads them, without refused ones.

        Those are counted as failures.
        """
        return self._delivery.read(phase, results, read)

    def require_any(self, valid: Sequence[object], phase: str) -> None:
        """Raise `NoValidResultError`, which ends the run, if nothing is valid."""
        self._delivery.require_any(valid, phase)

    # Models --------------------------------------------------------------------------

    def initial_model(self, seed: int | None = None) -> Vector:
        """Return the common initial model, (d,), or one with a seed of its own."""
        return self._step.initial_model(seed)

    @property
    def network(self) -> FlatModel:
        """The run's network, to look at its layers and how its vector is divided."""
        return self._step.network

    @property
    def weights(self) -> int:
        """The number of the network's trainable weights, without running statistics."""
        return self._step.weights

    def weight(self, result: Result) -> float:
        """Return the weight of a result in a mean, as configured."""
        return self._step.weight(result)

    def average(self, results: Sequence[Result]) -> Vector:
        """Return the mean of the results' first arrays, weighted as configured."""
        return self._step.average(results)

    def step(self, model: Vector, mean: Vector, absent: int = 0) -> Vector:
        """Return the server optimiser's step from a model to its results' mean, (d,).

        ``absent`` counts weights of the network that are not in the model.
        """
        return self._step.step(model, mean, absent)

    def average_clusters(self, clusters: IntArray, results: Sequence[Result]) -> None:
        """Make each cluster's next model from its results; without any it stays.

        ``clusters`` has the cluster of each result, shape (m,).
        """
        models = self._context.state.models
        for cluster in np.unique(clusters):
            members = [results[int(i)] for i in np.flatnonzero(clusters == cluster)]
            models[cluster] = self._step.next_model(models[cluster], members)

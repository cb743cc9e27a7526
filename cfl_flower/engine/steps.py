"""The steps of a method in a round, and a look at what they left.

A method of one's own may draw from generators that all code shares, keep its models as
a matrix, or forget some clients: it draws as the run's seed says, and hears of the rest
where it happens.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from cfl_flower.clustering.representations import digest
from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.seeding import own_draws, torch_seed
from cfl_flower.state import ClusteredState
from cfl_flower.types import Plan, Result

log = logging.getLogger(__name__)


class Steps:
    """Calls the steps of a run's method."""

    def __init__(self, context: RoundContext) -> None:
        self._context = context
        self._told = False
        self._trained = False
        self._moved = False

    def welcome(self, newcomers: list[Result]) -> None:
        """Let the method place newcomers."""
        self._call("welcome", newcomers)

    def plan_train(self) -> Any:
        """Return the method's plan of who trains which model."""
        return self._call("plan_train")

    def absorb_train(self, results: Results) -> None:
        """Let the method compute the next models."""
        # By digests, as whoever held the old models would keep their memory.
        before = [] if self._moved else self._digests()
        self._call("absorb_train", results)
        self._trained = True
        self._moved = self._moved or before != self._digests()

    def plan_evaluate(self, test: bool) -> Any:
        """Return the method's plan of who tests and who reports."""
        plan = self._call("plan_evaluate", test)
        known = len(self._context.state.clients)
        # Devices without rounds test as they upload: there is no task at all.
        few = isinstance(plan, Plan) and 0 < len(plan.tasks) < known
        if test and few and not self._told:
            self._told = True
            log.warning(
                "plan_evaluate tests %s of %s clients: the accuracy is not everybody's",
                len(plan.tasks),
                known,
            )
        return plan

    def absorb_evaluate(self, results: Results) -> None:
        """Let the method take in reports; it may cluster anew."""
        self._call("absorb_evaluate", results)

    def end(self) -> None:
        """Say if training came to nothing in all rounds."""
        if not self._trained:
            log.warning("nobody trained in any round")
        elif not (self._moved or self._context.method.published.incomplete):
            log.warning(
                "clients trained, and absorb_train left all models as they were"
            )

    def _digests(self) -> list[str]:
        return [digest(model) for model in self._context.state.models]

    def _call(self, step: str, *args: Any) -> Any:
        context = self._context
        seed = torch_seed(context.config.seed, f"method/{step}", context.number)
        with own_draws(seed):
            found = getattr(context.method, step)(context.number, *args)
        _settle(context.state, step)
        return found


def _settle(state: ClusteredState, step: str) -> None:
    """Take matrices of models and any whole numbers that a step has left.

    Raises `ValueError`, which names the step, if a checkpoint could not be read.
    """
    state.models = [*state.models]
    clusters = np.asarray(state.clusters)
    if clusters.dtype.kind in "iu":
        state.clusters = clusters.astype(np.int64, copy=False)
    try:
        state.check()
    except ValueError as error:
        raise ValueError(f"after {step}, the state's {error}") from error

"""The steps of a method in a round, and a look at what they left.

A method of one's own may draw from generators that all code shares, keep its models as
a matrix, or forget some clients: it draws as the run's seed says, and hears of the rest
where it happens.
"""

from __future__ import annotations

import logging
from operator import is_
from typing import Any

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.seeding import seed_common, torch_seed
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
        before = [*self._context.state.models]
        self._call("absorb_train", results)
        after = self._context.state.models
        self._trained = True
        # Models are replaced, and never written.
        self._moved |= len(before) != len(after) or not all(map(is_, before, after))

    def plan_evaluate(self, test: bool) -> Any:
        """Return the method's plan of who tests and who reports."""
        plan = self._call("plan_evaluate", test)
        known = len(self._context.state.clients)
        few = test and isinstance(plan, Plan) and len(plan.tasks) < known
        if few and not self._told:
            self._told = True
            told = (
                "plan_evaluate tests %s of %s clients: accuracies do not compare with"
            )
            log.warning(f"{told} other methods'", len(plan.tasks), known)
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

    def _call(self, step: str, *args: Any) -> Any:
        context = self._context
        seed = torch_seed(context.config.seed, f"method/{step}", context.number)
        seed_common(seed)
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

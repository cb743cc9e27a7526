"""Who receives the models that clients choose by, and what the downloads cost.

A client that migrates needs as many models as there are clusters. Whether its device
kept them from an earlier choice decides whether they come with its test message, and
whether they count as bytes of the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cfl_flower.clustering.representations import digest
from cfl_flower.types import BoolArray, IntArray, Result, Scalar, Vector
from clients.flexcfl import DirectionsRequest


@dataclass(frozen=True)
class FetchedModels:
    """Models that change from round to round, so that each choice fetches them anew.

    They are part of every test message, which saves an exchange of messages; but only
    clients that chose again are charged.
    """

    models: list[Vector]
    """One for each cluster."""

    @property
    def config(self) -> Mapping[str, Scalar]:
        """Entries of the task config that go with the models."""
        return {}

    def receivers(self, state: Any) -> BoolArray:
        """Return which clients receive the models with their test, shape (n,)."""
        return np.ones(len(state.clients), bool)

    def account(self, state: Any, rows: IntArray, results: list[Result]) -> int:
        """Return the bytes that count, of the downloads with the tests of some rows."""
        return self.size * sum(result.report is not None for result in results)

    @property
    def size(self) -> int:
        """The bytes of all models."""
        return sum(model.nbytes for model in self.models)


@dataclass(frozen=True)
class KeptModels(FetchedModels):
    """Models that never change: a client receives them once, and keeps them.

    ``state.holding`` has who did; one that reports them ``lost`` receives them again.
    """

    @cached_property
    def config(self) -> Mapping[str, Scalar]:
        """The name under which clients keep the models, as a task config."""
        return DirectionsRequest(digest(np.concatenate(self.models))).to_config()

    def receivers(self, state: Any) -> BoolArray:
        """Return which clients have not received the models yet."""
        missing: BoolArray = ~state.holding
        return missing

    def account(self, state: Any, rows: IntArray, results: list[Result]) -> int:
        """Note who holds the models now; every one that was sent counts."""
        sent = int(np.count_nonzero(self.receivers(state)))
        state.holding[rows] = [not result.metrics.get("lost") for result in results]
        return self.size * sent

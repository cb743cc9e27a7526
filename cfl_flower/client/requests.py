"""What a server asks of clients: objects with the same fields at both ends.

A question of one word is an entry of a config, whose name is a constant beside the
client that answers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from cfl_flower.types import BoolArray, IntArray, Scalar


@dataclass(frozen=True)
class Request:
    """What a server asks in a plan's or a task's config, with an entry for each field.

    Its first field has no default: a config without it has no such request.
    """

    def to_config(self) -> dict[str, Scalar]:
        """Return the request as entries of a config."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self | None:
        """Return the request of a task's config; None if it has none."""
        names = [field.name for field in fields(cls)]
        if names[0] not in config:
            return None
        return cls(**{name: config[name] for name in names if name in config})


@dataclass(frozen=True)
class EvaluateRequest(Request):
    """What an evaluation is for."""

    test: bool
    """Whether to test the served model, which is the first of the parameters."""
    report_empty: bool = False
    """Whether to report that no data are left."""
    outcomes: int = 0
    """The labels of which the test's outcomes are counted (`learning.outcomes`), and
    the counts sent; 0 for none."""
    ahead: bool = False
    """Whether to test on the data of the next round, before they are trained on."""
    candidates: int = 0
    """How many of the parameters, the last ones, are what a model is chosen among, and
    by, without labels; 0 for no such test."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> EvaluateRequest:
        """Return the request of a task's config, which is a test if nothing is said."""
        return cls.from_config(config) or cls(test=True)


@dataclass(frozen=True)
class UploadRequest(Request):
    """What an asynchronous client is to train."""

    stamp: int
    """The server's time of the models that it receives."""
    cycle: int
    """Number of tasks received so far."""
    tested: bool = False
    """Whether to test the received and the trained model."""


@dataclass(frozen=True)
class LabelSumsRequest(Request):
    """Of which of a client's samples sums by label are asked for."""

    held_in: int
    """Those of this round."""
    half: int = 0
    """In the order of time the first or the second half; 0 for all."""

    def rows(self, times: IntArray) -> BoolArray:
        """Return which of some samples with times are asked for."""
        later = times > np.median(times)
        return np.ones(len(times), bool) if self.half == 0 else later == self.half - 1


SUMS = "sums"
"""Entry of a plan's config that asks for counts, sums and squares of all inputs."""

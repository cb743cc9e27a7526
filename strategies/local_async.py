"""Local, on the clock and the data of asynchronous methods: their lower reference.

Every client goes on from its own last model, at first from the mean of those that the
server pre-trained; nothing is communicated: the baseline of CCFL's tables. In a
simulation the model travels, to be tested and trained again, which costs nothing.
"""

from __future__ import annotations

from cfl_flower.engine.asynchronous import Exchange
from cfl_flower.engine.method import Published
from cfl_flower.types import Json, Result, Vector
from strategies.families.public_models import PublicSettings
from strategies.families.soft import SoftStrategy


class LocalAsync(SoftStrategy):
    """Each client receives the model that it sent."""

    Settings = PublicSettings
    exchange = Exchange(free=True)
    published = Published(
        incomplete="each client's model is its own; the common ones are the first"
    )

    def reply(self, row: int, result: Result) -> list[Vector]:
        """Return the client's own model."""
        # A copy: a view would keep all arrays of a message in memory.
        return [result.arrays[0].copy()]

    def describe_upload(self, row: int, result: Result) -> dict[str, Json]:
        """Return the entries of an upload that moved no model and was not stale."""
        return {"stale": False, "ratios": None}

"""A method without rounds as a Flower strategy, and what its file begins with."""

from __future__ import annotations

from typing import Any

from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result as StrategyResult

from cfl_flower.engine.method import ClusteredStrategy
from cfl_flower.engine.uploads import Uploads
from cfl_flower.engine.uploads_state import (
    AsynchronousSettings,
    AsynchronousState,
    Exchange,
    UploadMethod,
)

__all__ = [
    "AsynchronousSettings",
    "AsynchronousState",
    "AsynchronousStrategy",
    "Exchange",
]
"""What the file of an asynchronous method begins with."""


class AsynchronousStrategy(UploadMethod, ClusteredStrategy):
    """A method without rounds as a Flower strategy."""

    engine: Uploads

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, engine=Uploads, **options)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        *unused: Any,
        **unused_options: Any,
    ) -> StrategyResult:
        """Take in uploads until as many are in as the rounds have participants."""
        self.engine.start(num_rounds, timeout)
        return StrategyResult()

"""Flower's verbs, which a method hands to its engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

if TYPE_CHECKING:
    from cfl_flower.engine.rounds import Rounds


class FlowerStrategy(Strategy):
    """A Flower strategy that has an engine."""

    engine: Rounds

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return the messages of a round's training tasks."""
        return self.engine.configure_train(server_round)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take in the training results; the models stay in the state."""
        return self.engine.aggregate_train(replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return the messages of a round's tests."""
        return self.engine.configure_evaluate()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Take in the tests and what clients report with them."""
        return self.engine.aggregate_evaluate(replies)

    def summary(self) -> None:
        """Print nothing: callbacks do."""

"""A client that chooses its cluster: FlexCFL, IFCA and FeSEM.

Computes: beside training and tests, its choice; the label counts of what arrives next,
if clients migrate. Sends: the number of the cluster it chose. Keeps: the label counts
of the data that it chose by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cfl_flower.clustering.representations import label_counts
from cfl_flower.types import Scalar, Vector
from clients.base import ClusteredClient


class ChoosingClient(ClusteredClient):
    """Chooses when it joins, and again when its label counts shifted."""

    def choose(
        self, received: Sequence[Vector], config: dict[str, Any], round: int
    ) -> int:
        """Return the cluster that suits a round's data best.

        Parameters
        ----------
        received : sequence of vectors
            One for each cluster, or what the method introduces newcomers with.
        config : dict
        round : int
        """
        raise NotImplementedError

    def choose_again(
        self, received: Sequence[Vector], config: dict[str, Any], round: int
    ) -> int | None:
        """Return the cluster to migrate to; None if it cannot be told."""
        return self.choose(received, config, round)

    def get_properties(self, config: dict[str, Any]) -> dict[str, Scalar]:
        """Answer the server's hello, and remember what the first choice is made by."""
        if self.context.settings.migration:
            self.remember(self.context.round + 1)
        return super().get_properties(config)

    def answer(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Scalar]]:
        """Answer the hello, or the question of the first cluster."""
        if not config.get("choose"):
            return super().answer(parameters, config)
        upcoming = self.context.round + 1
        cluster = self.choose(parameters, config, upcoming)
        return [], len(self.data(upcoming).labels), {"cluster": cluster}

    def report(
        self,
        config: dict[str, Any],
        round: int,
        parameters: Sequence[Vector] = (),
    ) -> dict[str, Scalar]:
        """Choose again if the label counts shifted since the last choice.

        ``config["chosen"]`` is the round in which the server took that choice: one that
        was lost on the way is made again. A client without data stays where it is.
        """
        if "chosen" not in config:
            return {}
        context, labels = self.context, self.data(round).labels
        if len(labels) == 0:
            return {}
        before = context.state.part("choice").at(int(config["chosen"])).get("counts")
        counts = label_counts(labels, context.stream.classes)
        if before is not None and not context.settings.shift.detects(counts, before):
            return {}
        offered = parameters[1:] if config["test"] else parameters
        cluster = self.choose_again(offered, config, round)
        if cluster is None:
            return {"lost": True}
        self.remember(round, int(config["chosen"]))
        return {"cluster": cluster}

    def remember(self, round: int, taken: int | None = None) -> None:
        """Keep the label counts of a round's data, beside those of the choice taken."""
        labels = self.data(round).labels
        counts = label_counts(labels, self.context.stream.classes)
        self.context.state.part("choice").save(
            self.context.round, {"counts": counts}, taken
        )

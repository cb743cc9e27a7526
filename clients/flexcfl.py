"""FlexCFL's client: compares its update from w_0 with the groups' directions.

Computes: the update of some mini-batches from w_0, when it joins and when its label
counts shifted. Sends: that update (d floats, or its sketch) if it is one of the first;
else the number of the nearest group. Keeps: the directions; w_0 follows from the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cfl_flower.clustering.similarity import nearest_group, sketch
from cfl_flower.types import Config, Metrics, Reply, Vector
from clients.families.choosing import ChoosingClient

PRETRAIN = "pretrain"
"""Entry of a config that asks to train from w_0 and to send the update."""
DIRECTIONS = "directions"
"""Entry of a config: the name under which the groups' directions are saved."""


class FlexCFLClient(ChoosingClient):
    """Cold start on the device: eq. 8."""

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer as every choosing client, or send the update from w_0."""
        if PRETRAIN not in config:
            self.keep(parameters, config)
            return super().answer(parameters, config)
        upcoming = self.context.upcoming
        return [self.pretrain(upcoming)], len(self.data(upcoming).labels), {}

    def pretrain(self, server_round: int) -> Vector:
        """Return the update of training from w_0 on a round's data, or its sketch."""
        start = self.context.initial()
        # Algorithm 3, line 5: ClientUpdate from w_0.
        local = replace(self.local, steps=self.settings.pretraining)
        trained, _ = self.train_from(start, local, server_round, "pretraining")
        update = trained - start
        if self.settings.sketch:
            return sketch(update, self.settings.sketch, self.context.seed)
        return update

    def choose(self, received: Sequence[Vector], server_round: int) -> int:
        """Return the group of the nearest direction: eq. 8."""
        return nearest_group(self.pretrain(server_round), received)

    def candidates(self, sent: Sequence[Vector], config: Config) -> Sequence[Vector]:
        """Return the saved directions; none if they were lost."""
        kept = self.context.state.kept(config[DIRECTIONS])
        return [kept[str(group)] for group in range(len(kept))]

    def report(
        self, config: Config, server_round: int, parameters: Sequence[Vector] = ()
    ) -> Metrics:
        """Save the directions if they were sent; choose again after a shift."""
        self.keep(super().candidates(parameters, config), config)
        return super().report(config, server_round, parameters)

    def keep(self, directions: Sequence[Vector], config: Config) -> None:
        """Save the directions for a later migration."""
        if directions and self.settings.migration:
            arrays = {str(group): each for group, each in enumerate(directions)}
            self.context.state.keep(config[DIRECTIONS], arrays)

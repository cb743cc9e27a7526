"""A client that has all clients clustered anew in every round is not heard for long."""

from __future__ import annotations

import numpy as np
import pytest

from cfl_flower.engine.stages.stage import MOST, REGAINED
from cfl_flower.types import Vector
from clients.base import Config
from clients.fielding import FieldingClient
from tests.conftest import Runner

LIAR = 2
ROUNDS = 16


class Restless(FieldingClient):
    """Client `LIAR` says in every round that all of its samples have another label."""

    def represent(self, config: Config, server_round: int) -> Vector:
        """Return a distribution that no other client has."""
        honest = super().represent(config, server_round)
        if self.context.client != LIAR:
            return honest
        forged = np.zeros_like(honest)
        forged[server_round % len(forged)] = 1
        return forged


CLIENT = f"strategy.client={__name__}.Restless"
OPTIONS = ["strategy=fielding", f"rounds={ROUNDS}", "drift=none", "partition.groups=3"]


@pytest.mark.parametrize("trigger", ["strategy.threshold=0.1", "/trigger=pairwise"])
def test_reports_that_recluster_round_after_round_are_left_out(
    trigger: str, run_small: Runner
) -> None:
    run = run_small(*OPTIONS, CLIENT, trigger.replace("/", "strategy/"))
    led = sum(bool(row["reclustered"]) for row in run.rounds)
    assert MOST <= led <= MOST + REGAINED * ROUNDS
    resting = [row["resting"] for row in run.rounds if "resting" in row]
    assert all(each == [LIAR] for each in resting)
    assert len(resting) >= ROUNDS / 2
    # It is tested like any other, and comes back when its budget has grown.
    tested = {row["client"] for row in run.clients if row["round"] == ROUNDS}
    assert LIAR in tested
    last = max(row["round"] for row in run.rounds if row["reclustered"])
    assert last > MOST + 1


def test_who_drifts_with_most_others_spends_nothing(run_small: Runner) -> None:
    run = run_small("strategy=fielding", "drift.rounds=[2,3,4,5,6]", "rounds=7")
    assert not any("resting" in row for row in run.rounds)

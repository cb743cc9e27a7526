"""A run of devices once more, in process, where just those results fail that did.

It says what must have come of the results that are on record as valid: had one more or
less entered a model, or one twice, a number would differ.
"""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from flwr.app import Error, Message
from rich.console import Console

from cfl_flower.client.node_config import CLIENT_ID
from cfl_flower.config.compose import compose_config
from cfl_flower.runs.reading import read_rounds, read_tests
from cfl_flower.server_app import execute
from simulations.engines.inprocess import InProcessGrid
from tests.chaos.results import TIMED, differences

Loss: TypeAlias = tuple[int, str, str]
"""Round, phase and client of a result that failed."""

Strikes: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]
"""The rounds, first and last, within which each of a client's faults happened."""


class ReplayGrid(InProcessGrid):
    """Devices in process, of which some give no answer to some messages."""

    def __init__(self, devices: Iterable[dict[str, Any]], losses: Collection[Loss]):
        super().__init__(devices)
        self._losses = losses

    def answer(self, message: Message) -> Message:
        told = message.metadata
        client = self.node_configs[told.dst_node_id][CLIENT_ID]
        server_round = int(told.group_id or 0)
        if (server_round, told.message_type, client) in self._losses:
            return Message(Error(2, "as it failed"), reply_to=message)
        return super().answer(message)


def losses(folder: Path) -> list[Loss]:
    """Return the failures on record of a run."""
    return [
        (row["round"], failure["phase"], failure["client"])
        for row in read_rounds(folder)
        for failure in row["failures"]
    ]


def judge(
    folder: Path,
    settings: Sequence[str],
    devices: Iterable[dict[str, Any]],
    strikes: Strikes,
) -> list[str]:
    """Return what is wrong with a finished run of devices, a line for each."""
    failed = losses(folder)
    again = folder.with_name(f"{folder.name}-again")
    config = compose_config([*settings, f"output_dir={again}"])
    logging.disable(logging.WARNING)  # It would tell the failures again.
    try:
        execute(ReplayGrid(devices, failed), config, Console(file=io.StringIO()))
    finally:
        logging.disable(logging.NOTSET)
    found = [
        *counted_twice(read_tests(folder)),
        *unexplained(failed, strikes),
        *differences(again, folder, (*TIMED, "failures")),
    ]
    if sorted(losses(again)) != sorted(failed):
        found.append("rounds.jsonl: other failures")
    return found


def counted_twice(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the clients that have more than one row in a round, a line for each."""
    counts = Counter((row["round"], row["client"]) for row in rows)
    return [
        f"clients.jsonl: {client} has {count} rows in round {server_round}"
        for (server_round, client), count in counts.items()
        if count > 1
    ]


def unexplained(failed: Collection[Loss], strikes: Strikes) -> list[str]:
    """Return the failures of clients that no fault met, a line for each.

    A fault explains failures until the first round in which all went well again.
    """
    found = []
    for server_round, phase, client in failed:
        bad = {each for each, _, name in failed if name == client}
        well = next((r for r in range(server_round - 1, 0, -1) if r not in bad), 1)
        met = strikes.get(client, ())
        if not any(first <= server_round and last >= well for first, last in met):
            found.append(
                f"round {server_round}: {client} failed in {phase} without a fault"
            )
    return found

"""A server that dies and asks again learns no second sum of other devices."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from cfl_flower.communication.records import unpack_sums, unpack_tasks
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.secure.groups import Groups
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import Runner

OPTIONS = [
    *("strategy=fedavg", "privacy.secure_sums=true", "drift=none", "rounds=4"),
    *("clients=6", "participants=6"),
]


class KilledError(Exception):
    """The end of the server's process."""


class Mortal(InProcessGrid):
    """Devices, what they added masks to, and a server that dies while they answer."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            {"client-id": client, "state-dir": str(root / str(client))}
            for client in range(6)
        )
        self.kill = 0
        self.sent: dict[tuple[Any, int], list[Groups]] = defaultdict(list)

    def push_messages(self, messages: Any) -> list[str]:
        listed = list(messages)
        pushed = super().push_messages(listed)
        now = listed[0].metadata.message_type, listed[0].metadata.group_id
        if now == ("train", str(self.kill)):
            raise KilledError
        return pushed

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        if message.metadata.message_type == "train" and unpack_sums(reply.content):
            batch = unpack_tasks(message.content)
            (task,) = batch.plan.tasks
            self.sent[task.client, batch.round].append(Groups.of_config(task.config))
        return reply


@pytest.mark.parametrize("away", [False, True])
def test_no_device_adds_its_result_to_two_sums_of_a_round(
    away: bool, run_small: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if another one is away, whose result would be their difference."""
    monkeypatch.setattr("cfl_flower.communication.nodes.JOIN_TIMEOUT", 0.1)
    grid = Mortal(tmp_path)
    nodes = dict(grid.node_configs)
    for grid.kill in range(1, 5):
        with pytest.raises(KilledError):
            run_small(*OPTIONS, "resume=true", grid=grid)
        grid.node_configs = dict(nodes)
        if away:
            grid.remove_node(1000 + grid.kill)
    grid.kill = 0
    run = run_small(*OPTIONS, "resume=true", grid=grid)
    assert len(run.rounds) == 4
    assert {round for _, round in grid.sent} == {1, 2, 3, 4}
    for groups in grid.sent.values():
        assert len({each.digest() for each in groups}) == 1
        assert len({each.salt for each in groups}) == len(groups)
    # The same devices are asked again, and other ones refuse.
    assert (max(map(len, grid.sent.values())) > 1) != away


@pytest.mark.parametrize("every", [2, 3, 10])
@pytest.mark.parametrize("hidden", ["secure_sums=true", "secure_sums=false"])
def test_a_checkpoint_of_fewer_rounds_is_refused(every: int, hidden: str) -> None:
    options = [f"privacy.{hidden}", f"system.checkpoint_every={every}"]
    if hidden.endswith("false"):
        pytest.importorskip("dp_accounting")
        options += ["privacy=local"]
    with pytest.raises(ConfigError, match=f"checkpoint_every={every} .* use 1 with"):
        compose_config(["strategy=fedavg", *options])

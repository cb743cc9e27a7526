from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.conftest import open_method


def test_who_may_not_take_part_is_never_chosen(tmp_path: Path) -> None:
    method = open_method(tmp_path, "strategy=fedavg", "clients=8", "participants=6")
    method.state.clients = list(range(8))
    method.state.clusters = np.zeros(8, np.int64)
    method.state.empty = [2]
    able = np.arange(8) % 2 == 0
    late = np.arange(8) < 6
    participants = method.run.participants
    participants.eligible += [lambda: able, lambda: late]
    for server_round in range(1, 5):
        assert participants.choose(server_round) == [0, 4]

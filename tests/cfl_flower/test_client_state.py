from __future__ import annotations

from pathlib import Path

import numpy as np

from cfl_flower.client_state import ClientState


def value(state: ClientState, before: int) -> float | None:
    found = state.load(before).get("x")
    return None if found is None else float(found[0])


def test_a_client_reads_the_newest_version_from_before_its_round(
    tmp_path: Path,
) -> None:
    state = ClientState(tmp_path, 3)
    assert state.load(before=99) == {}
    for round in (1, 4):
        state.save(round, {"x": np.float32([round])})
    assert [value(state, before) for before in (1, 2, 4, 5, 99)] == [None, 1, 1, 4, 4]


def test_a_repeated_round_replaces_what_a_killed_run_left(tmp_path: Path) -> None:
    state = ClientState(tmp_path, 3)
    state.save(2, {"x": np.float32([1])})
    state.save(2, {"x": np.float32([5])})
    assert value(state, 3) == 5


def test_the_version_that_the_checkpoint_needs_is_kept(tmp_path: Path) -> None:
    for round, keep_from in ((1, 0), (3, 0), (5, 4), (6, 4), (8, 7)):
        ClientState(tmp_path, 3, keep_from).save(round, {"x": np.float32([round])})
    # The checkpoint of round 7 may be resumed: round 8 then reads version 6.
    kept = sorted(int(path.stem) for path in (tmp_path / "3").iterdir())
    assert kept == [6, 8]
    assert value(ClientState(tmp_path, 3), before=8) == 6


def test_clients_do_not_see_each_other(tmp_path: Path) -> None:
    ClientState(tmp_path, 3).save(1, {"x": np.float32([1])})
    assert ClientState(tmp_path, "site-a").load(9) == {}
    assert ClientState(tmp_path, 4).load(9) == {}


def test_an_unfinished_file_is_no_version(tmp_path: Path) -> None:
    state = ClientState(tmp_path, 3)
    state.save(1, {"x": np.float32([1])})
    (tmp_path / "3" / ".00000002.safetensors.77.tmp").write_bytes(b"torn")
    assert value(state, 9) == 1


def test_what_is_not_named_keeps_its_value(tmp_path: Path) -> None:
    state = ClientState(tmp_path, 3)
    state.save(1, {"x": np.float32([1]), "y": np.float32([2])})
    state.save(4, {"y": np.float32([5])})
    state.save(4, {"z": np.float32([6])})
    found = {name: float(array[0]) for name, array in state.load(9).items()}
    assert found == {"x": 1, "y": 5, "z": 6}
    assert float(state.load(4)["y"][0]) == 2

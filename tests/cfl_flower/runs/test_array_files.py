"""Large arrays of a checkpoint: written once, and complete at every moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cfl_flower.environment.files import remove_leftovers
from cfl_flower.errors import CheckpointError
from cfl_flower.runs import array_files
from cfl_flower.runs import checkpoint as module
from cfl_flower.runs.checkpoint import Checkpoint

LENGTH = 1000


@dataclass
class Models:
    models: list
    directions: list
    table: np.ndarray


def model(number: int) -> np.ndarray:
    return np.full(LENGTH, number, np.float32)


def models(*numbers: int) -> Models:
    table = np.arange(2.0 * LENGTH).reshape(2, LENGTH)
    return Models([model(n) for n in numbers], [model(1)], table)


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """Return a folder, for which a model of 1,000 numbers is large."""
    monkeypatch.setattr(array_files, "LARGE", 4 * LENGTH)
    return Checkpoint(tmp_path / "checkpoint", {})


def files(checkpoint: Checkpoint) -> dict[str, int]:
    """Return when each array's file was written."""
    found = checkpoint.folder.glob(f"*{array_files.SUFFIX}")
    return {path.name: path.stat().st_mtime_ns for path in found}


def test_an_array_is_written_once_wherever_it_is(checkpoint: Checkpoint) -> None:
    checkpoint.save(1, models(1, 1, 2))
    # Two models and the table.
    assert len(files(checkpoint)) == 3
    _, state = checkpoint.load(Models)
    assert [each[0] for each in state.models] == [1, 1, 2]
    assert state.models[0] is state.models[1] is state.directions[0]
    assert state.table.tolist() == models().table.tolist()
    state.table[0] = 7
    assert state.table[0, 0] == 7


def test_only_what_changed_is_written_and_the_rest_goes(checkpoint: Checkpoint) -> None:
    checkpoint.save(1, models(1, 2))
    first = files(checkpoint)
    checkpoint.save(2, models(1, 3))
    second = files(checkpoint)
    assert len(second) == 3
    kept = first.keys() & second.keys()
    assert len(kept) == 2
    assert all(first[name] == second[name] for name in kept)
    assert [each[0] for each in checkpoint.load(Models)[1].models] == [1, 3]


@pytest.mark.parametrize("place", range(4))
def test_a_kill_at_any_write_leaves_the_last_checkpoint(
    place: int, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(1, models(1, 2))
    original, calls = module.write_atomically, list[Path]()

    def killed(path: Path, data: bytes | memoryview, sync_name: bool = True) -> None:
        calls.append(path)
        if len(calls) > place:
            left = f".{path.name}.{10**9 - 1}.tmp"
            path.with_name(left).write_bytes(data[:9])
            raise KeyboardInterrupt
        original(path, data, sync_name)

    monkeypatch.setattr(module, "write_atomically", killed)
    monkeypatch.setattr(array_files, "write_atomically", killed)
    # Two new models, the small arrays and the header.
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(2, models(3, 4))
    round, state = checkpoint.load(Models)
    assert (round, [each[0] for each in state.models]) == (1, [1, 2])
    monkeypatch.undo()
    monkeypatch.setattr(array_files, "LARGE", 4 * LENGTH)
    # As a run that is resumed does.
    remove_leftovers(checkpoint.folder)
    checkpoint.save(2, models(3, 4))
    assert [each[0] for each in checkpoint.load(Models)[1].models] == [3, 4]
    # The two models, the direction, the table, the small arrays and the header.
    assert len(list(checkpoint.folder.iterdir())) == 6


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_array_is_refused(damage: str, checkpoint: Checkpoint) -> None:
    checkpoint.save(1, models(1, 2))
    path = checkpoint.folder / sorted(files(checkpoint))[0]
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        path.write_bytes(bytes([data[0] ^ 0xFF]) + data[1:])
    with pytest.raises(CheckpointError, match=r"is torn.*another output_dir"):
        checkpoint.load(Models)

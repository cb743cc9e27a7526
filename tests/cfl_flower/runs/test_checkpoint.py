import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from cfl_flower.environment.files import remove_leftovers
from cfl_flower.errors import CheckpointError, ConfigError
from cfl_flower.runs import checkpoint as module
from cfl_flower.runs.asked import ASKED, Asked
from cfl_flower.runs.checkpoint import Checkpoint
from tests.fuzzing import VIEWS

CONFIG = {"seed": 1, "clients": 4, "rounds": 9, "strategy": {"name": "fielding"}}


@dataclass
class State:
    clients: list
    clusters: np.ndarray
    models: list
    empty: np.ndarray
    notes: dict


def state(shift: float = 0.0) -> State:
    return State(
        [0, 1, "site-a"],
        np.array([0, 1, 1]),
        [np.float32([1 + shift, 2]), np.float32([3, 4])],
        np.zeros((0, 10), np.float32),
        {1: "one", "two": [np.array([2.0])], "none": None, "bytes": b"\0\1"},
    )


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoint:
    checkpoint = Checkpoint(tmp_path / "run" / "checkpoint", CONFIG)
    checkpoint.save(3, state())
    return checkpoint


def test_a_loaded_state_equals_the_saved_one(saved):
    round, loaded = saved.load(State)
    assert round == 3
    np.testing.assert_equal(vars(loaded), vars(state()))
    assert loaded.clusters.dtype == np.int64
    assert {model.dtype for model in loaded.models} == {np.dtype(np.float32)}
    loaded.clusters[0] = 7


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_loaded_array_has_the_values_of_a_view(view, large, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LARGE", 0 if large else 10**6)
    checkpoint = Checkpoint(tmp_path, CONFIG)
    expected = State([], view(np.arange(6.0).reshape(2, 3)), [], np.zeros(1), {})
    checkpoint.save(1, expected)
    _, found = checkpoint.load(State)
    np.testing.assert_array_equal(found.clusters, expected.clusters, strict=True)


LENGTH = 1000


@dataclass
class Models:
    models: list
    directions: list
    table: np.ndarray


def models(*numbers: int) -> Models:
    """Return models, and one of them and a table in other places."""
    table = np.arange(2.0 * LENGTH).reshape(2, LENGTH)
    vectors = [np.full(LENGTH, number, np.float32) for number in (*numbers, 1)]
    return Models(vectors[:-1], vectors[-1:], table)


def first_numbers(checkpoint: Checkpoint) -> tuple[int, list[float]]:
    server_round, state = checkpoint.load(Models)
    return server_round, [each[0] for each in state.models]


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    """Return a folder, for which a model of 1,000 numbers is large."""
    monkeypatch.setattr(module, "LARGE", 4 * LENGTH)
    return Checkpoint(tmp_path / "checkpoint", {})


def written(checkpoint: Checkpoint) -> dict[str, int]:
    """Return when each large array's file was written."""
    found = checkpoint.folder.glob(f"*{module.SUFFIX}")
    return {path.name: path.stat().st_mtime_ns for path in found}


def test_a_large_array_is_written_once_wherever_it_is(checkpoint):
    checkpoint.save(1, models(1, 1, 2))
    assert len(written(checkpoint)) == 3  # two models and the table
    _, state = checkpoint.load(Models)
    assert [each[0] for each in state.models] == [1, 1, 2]
    assert state.models[0] is state.models[1] is state.directions[0]
    assert state.table.tolist() == models().table.tolist()
    state.table[0] = 7
    assert state.table[0, 0] == 7


def test_only_what_changed_is_written_and_the_rest_goes(checkpoint):
    checkpoint.save(1, models(1, 2))
    first = written(checkpoint)
    checkpoint.save(2, models(1, 3))
    second = written(checkpoint)
    assert len(second) == 3
    kept = first.keys() & second.keys()
    assert len(kept) == 2
    assert all(first[name] == second[name] for name in kept)
    assert first_numbers(checkpoint) == (2, [1, 3])


@pytest.mark.parametrize("place", range(4))
def test_a_kill_at_any_write_leaves_the_last_checkpoint(place, checkpoint, monkeypatch):
    checkpoint.save(1, models(1, 2))
    original, calls = module.write_atomically, list[Path]()

    def killed(path: Path, data: bytes | memoryview, sync_name: bool = True) -> None:
        calls.append(path)
        if len(calls) > place:
            left = f".{path.name}.{10**9 - 1}.tmp"
            path.with_name(left).write_bytes(data[:9])
            raise KeyboardInterrupt
        original(path, data, sync_name)

    # Two new models, the small arrays and the header.
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "write_atomically", killed)
        checkpoint.save(2, models(3, 4))
    assert first_numbers(checkpoint) == (1, [1, 2])
    # As a run that is resumed does.
    remove_leftovers(checkpoint.folder)
    checkpoint.save(2, models(3, 4))
    assert first_numbers(checkpoint) == (2, [3, 4])
    # The two models, the direction, the table, the small arrays and the header.
    assert len(list(checkpoint.folder.iterdir())) == 6


@pytest.mark.parametrize("name", ["checkpoint.json", "*.safetensors", "*.array"])
@pytest.mark.parametrize("damage", ["cut", "first", "last", "gone"])
def test_a_torn_checkpoint_is_refused(checkpoint, name, damage):
    state = models(1, 2)
    state.directions.append(np.arange(3.0))  # among the small arrays
    checkpoint.save(3, state)
    path = min(checkpoint.folder.glob(name))
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    else:
        # The first byte is of a length or an array, the last one of an array.
        flipped = bytearray(data)
        flipped[0 if damage == "first" else -1] ^= 0xFF
        path.write_bytes(flipped)
    with pytest.raises(CheckpointError, match=r"is torn.*another output_dir") as caught:
        checkpoint.load(Models)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "differs"),
    [
        ("seed", 2, "seed"),
        ("clients", 5, "clients"),
        ("strategy", {"name": "static"}, "strategy.name"),
        ("strategy", {"name": "fielding", "tau": 1}, "strategy.tau"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(saved, key, value, differs):
    other = Checkpoint(saved.folder, {**CONFIG, key: value})
    with pytest.raises(CheckpointError, match=f"of another run: {differs} was"):
        other.load(State)


@dataclass
class Seen:
    client: str
    utility: np.ndarray


@dataclass
class Nested:
    latest: Seen | None


def header_of(checkpoint: Checkpoint) -> dict:
    return json.loads((checkpoint.folder / "checkpoint.json").read_text())


def refusal(checkpoint: Checkpoint, header: dict, state_class: type) -> str:
    (checkpoint.folder / "checkpoint.json").write_text(json.dumps(header))
    with pytest.raises(ConfigError) as early:
        checkpoint.check_state(state_class)
    with pytest.raises(ConfigError) as caught:
        checkpoint.load(state_class)
    assert caught.value.exit_code == 2
    assert str(early.value) == str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("number", [None, 1, 2, 99])
def test_a_checkpoint_of_another_format_is_refused_in_one_line(saved, number):
    header = {**header_of(saved), "format": number, "schema": 1}
    if number is None:
        del header["format"]
    assert refusal(saved, header, State) == (
        f"checkpoint {saved.folder} was written by another version of cfl-flower "
        "and cannot be resumed; start anew in another output_dir"
    )


@pytest.mark.parametrize(
    ("change", "other"), [({"client": "a", "more": 1}, "more"), ({}, "client")]
)
def test_a_state_class_with_other_fields_is_refused(saved, change, other):
    saved.save(5, Nested(Seen("a", np.zeros(1))))
    saved.check_state(Nested)
    header = header_of(saved)
    seen = header["state"]["fields"]["latest"]
    seen["fields"] = {"utility": seen["fields"]["utility"], **change}
    said = f"another version of cfl-flower's latest.{other} "
    assert said in refusal(saved, header, Nested)
    header["state"]["class"] = "Other"
    assert "another version of cfl-flower's Other" in refusal(saved, header, Nested)


def test_a_state_that_no_checkpoint_can_hold_names_the_field(tmp_path):
    bad = state()
    bad.notes = {"one": [torch.zeros(2)]}
    with pytest.raises(TypeError, match=r"state\.notes\.0\.0 is a Tensor"):
        Checkpoint(tmp_path / "checkpoint", CONFIG).save(1, bad)


def test_notes_reach_back_to_the_last_checkpoint_that_there_may_be(tmp_path):
    died = Asked(tmp_path, resume=False)
    for round in (1, 2, 3):
        died.note("train", round, [3, "site-a"])
    died.note("means", 3, [3], key="one")
    assert died.before("train", 3) == {}
    again = Asked(tmp_path, resume=True)
    again.note("means", 3, [3, 7], key="other")
    third = Asked(tmp_path, resume=True)
    for each in (again, third):
        assert each.before("train", 1) == {}
        assert each.before("train", 2) == {"": {3, "site-a"}}
    assert again.before("means", 3) == {"one": {3}}
    assert third.before("means", 3) == {"one": {3}, "other": {3, 7}}
    assert Asked(tmp_path, resume=False).before("train", 3) == {}


@pytest.mark.parametrize("text", ["", "[", "5", "[[1]]", '[["train",1,"",5]]'])
def test_damaged_notes_are_one_line(text, tmp_path):
    (tmp_path / ASKED).write_text(text)
    with pytest.raises(ConfigError, match=r"cannot be read \(.*without it no account"):
        Asked(tmp_path, resume=True)

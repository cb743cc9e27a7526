from pathlib import Path

import numpy as np
import pytest

from cfl_flower.client.context import ClientState
from cfl_flower.environment import files
from cfl_flower.errors import ConfigError, SavedStateError
from tests.fuzzing import VIEWS


def value(state: ClientState, before: int) -> float | None:
    found = state.load(before).get("x")
    return None if found is None else float(found[0])


@pytest.mark.parametrize("alone", [False, True])
def test_file_names_are_synced_on_devices_only(alone, tmp_path, monkeypatch):
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    state = ClientState(tmp_path, "site-a", alone=alone)
    state.save(1, {"x": np.float32([1])})
    state.part("classifier").save(1, {"x": np.float32([1])})
    own = tmp_path / "site-a"
    assert synced == ([own, own / "classifier"] if alone else [])


def test_old_versions_are_deleted_between_checkpoints(tmp_path):
    for round in range(1, 20):
        state = ClientState(tmp_path, 3, keep_from=(round - 1) // 10 * 10)
        state.save(round, {"x": np.float32([round])})
        # Whatever a step of this or of the next round asks for.
        assert value(state, round + 1) == round
        assert value(state, round) == (round - 1 or None)
        assert len(list((tmp_path / "3").iterdir())) <= 3
    # The checkpoint of round 10 is the last one.
    assert value(state, 11) == 10


def test_an_unfinished_file_is_no_version(tmp_path):
    state = ClientState(tmp_path, 3)
    state.save(1, {"x": np.float32([1])})
    (tmp_path / "3" / ".00000002.safetensors.77.tmp").write_bytes(b"torn")
    assert value(state, 9) == 1


def test_a_version_that_is_referred_to_outlives_newer_ones(tmp_path):
    state = ClientState(tmp_path, 3, keep_from=10)
    for round in (0, 5, 12):
        state.save(round, {"x": np.float32([round])}, also=0)
    assert state.at(0)["x"].tolist() == [0]
    state.save(13, {"x": np.float32([13])})
    assert state.at(0) == {}


def test_shared_arrays_are_saved_once(tmp_path):
    one, two = ClientState(tmp_path, 1), ClientState(tmp_path, "site")
    name = "shared-0123456789abcdef"
    assert one.kept(name) == {}
    one.keep(name, {"x": np.float32([1, 2])})
    two.keep(name, {"x": np.float32([9, 9])})
    assert two.kept(name)["x"].tolist() == [1, 2]
    assert len(list((tmp_path / ".common").iterdir())) == 1


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_what_comes_back_has_the_values_of_a_view(view, tmp_path):
    array = view(np.arange(6.0).reshape(2, 3))
    state = ClientState(tmp_path, 1)
    state.save(1, {"x": array})
    state.keep("shared-0123456789abcdef", {"x": array})
    for found in (state.at(1), state.kept("shared-0123456789abcdef")):
        np.testing.assert_array_equal(found["x"], array, strict=True)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_values_that_are_not_finite_are_not_saved(number, tmp_path):
    state = ClientState(tmp_path, 7)
    sound = {"own": np.ones(3, np.float32)}
    state.save(1, sound)
    state.save(2, {**sound, "control": np.float32([0, number])})
    assert state.at(2) == {}
    assert state.load(3).keys() == {"own"}


def test_what_a_device_keeps_is_its_own_accounts(tmp_path):
    """Its noise secret is among it."""
    state = ClientState(tmp_path, "site-a", alone=True).part("privacy")
    state.save(0, {"secret": np.zeros(8, np.uint32)})
    (path,) = tmp_path.rglob("*.safetensors")
    assert oct(path.stat().st_mode)[-3:] == "600"


@pytest.mark.parametrize(
    "name", ["shared-x/../../victim", "..", "/etc/x", "", "word", "a" * 17]
)
def test_arrays_of_many_clients_stay_in_the_folder(name, tmp_path):
    state = ClientState(tmp_path / "state", "site-a")
    with pytest.raises(ConfigError, match="is not allowed"):
        state.keep(name, {"x": np.zeros(1)})
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_damaged_version_is_one_line_that_names_its_file(tmp_path):
    state = ClientState(tmp_path, 3)
    state.save(1, {"model": np.ones(4, np.float32)})
    (file,) = (tmp_path / "3").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    for read in (lambda: state.load(2), lambda: state.at(1)):
        with pytest.raises(SavedStateError, match=r"damaged .*; remove it") as error:
            read()
        assert str(file) in str(error.value)
        assert "\n" not in str(error.value)

"""Who has failed rests; a run in which all fail again and again is hopeless."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfl_flower.engine import turns as module
from cfl_flower.engine.turns import Turns
from cfl_flower.types import Result
from tests.conftest import open_method


@pytest.fixture
def turns(tmp_path: Path) -> Turns:
    """The turns of two clients."""
    method = open_method(tmp_path, "strategy=fedasync")
    method.engine.welcome([Result(1, 5), Result(2, 5)])
    found: Turns = method.engine._turns
    return found


def test_who_failed_rests_until_it_succeeds_or_some_time_has_passed(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns.note(1, valid=False)
    turns.note(2, valid=True)
    assert turns.resting() == {1}
    turns.note(1, valid=True)
    assert turns.resting() == set()
    monkeypatch.setattr(module, "REST", 0.0)
    turns.note(1, valid=False)
    assert turns.resting() == set()


def test_it_is_hopeless_when_all_fail_three_times_in_a_row(turns: Turns) -> None:
    for sound in (False, False, True, False, False):
        turns.note(1, sound)
        turns.note(2, valid=False)
    assert not turns.hopeless()
    turns.note(1, valid=False)
    assert turns.hopeless()
    turns.note(2, valid=True)
    assert not turns.hopeless()

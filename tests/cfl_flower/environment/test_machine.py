"""What this machine has."""

from __future__ import annotations

from cfl_flower.environment.machine import usable_cores


def test_there_is_a_core() -> None:
    assert usable_cores() >= 1

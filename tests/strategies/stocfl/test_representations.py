"""How psi is asked for again."""

from __future__ import annotations

from cfl_flower.types import Plan, Task
from strategies.stocfl import ask_for_changes


def test_known_clients_are_asked_for_changes_with_their_test() -> None:
    tests = Plan([Task(0, (1,)), Task(1, (0,))])
    plan = ask_for_changes(tests, {0: 7})
    assert plan.tasks == [Task(0, (1,), {"reported": 7}), Task(1, (0,))]


def test_known_clients_are_asked_for_changes_in_rounds_without_tests() -> None:
    plan = ask_for_changes(Plan([]), {0: 7, 2: 3})
    assert plan.tasks == [Task(0, (), {"reported": 7}), Task(2, (), {"reported": 3})]
    assert ask_for_changes(Plan([]), {}).tasks == []

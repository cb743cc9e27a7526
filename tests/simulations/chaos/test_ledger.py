"""What happened is counted, and a command may end in two ways."""

from __future__ import annotations

import signal

import pytest

from cfl_flower.errors import ERROR_MARK
from simulations.chaos.ledger import Ledger, judge_words


@pytest.mark.parametrize(
    ("code", "said", "good"),
    [
        (0, "", True),
        (-signal.SIGKILL, "", True),
        (1, f"{ERROR_MARK}a worker was lost; resume=true goes on\n", True),
        (1, "Traceback\n  File\nValueError", False),
        (1, "", False),
    ],
)
def test_a_command_completes_or_says_one_line(code: int, said: str, good: bool) -> None:
    assert (judge_words(code, said) == "") is good


def test_a_run_of_which_something_is_wrong_is_a_problem() -> None:
    ledger = Ledger()
    ledger.judge("fedavg", [])
    ledger.judge("fielding", ["checkpoint: other models"])
    assert ledger.problems == ["fielding: checkpoint: other models"]
    assert set(ledger.ends.values()) == {1}


def test_faults_that_found_nothing_are_counted_apart() -> None:
    ledger = Ledger()
    for happened in (True, False, True):
        ledger.note("freeze", happened)
    assert (ledger.faults["freeze"], ledger.missed["freeze"]) == (2, 1)

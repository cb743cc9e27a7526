"""What a method plans is checked before a message has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfl_flower.engine.declarations import check_plan
from cfl_flower.types import Plan, Task

MODEL = np.zeros(3, np.float32)


def test_numbers_of_numpy_are_pythons() -> None:
    task = Task(np.int64(4), (np.int64(0),))  # type: ignore[arg-type]
    (found,) = check_plan(Plan([task], [MODEL]), "plan_train", [4]).tasks
    assert type(found.client) is int
    assert [type(index) for index in found.models] == [int]
    assert found == Task(4, (0,))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (None, "plan_train returned None, not a Plan"),
        (Plan([], [MODEL.astype(float)]), "model 0 is no float32 vector"),
        (Plan([Task(1), Task(1)]), "several tasks of one client"),
        (Plan([Task(9)]), r"unknown clients: \[9\]"),
        (Plan([Task(1, (1,))], [MODEL]), r"client 1 models \(1,\) of 1"),
        (Plan([Task(1, (-1,))], [MODEL]), r"client 1 models \(-1,\) of 1"),
    ],
)
def test_a_plan_that_makes_no_sense_names_the_step(plan: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        check_plan(plan, "plan_train", [1, 2])


def test_whoever_is_new_may_be_asked() -> None:
    assert check_plan(Plan([Task("site-a")]), "hello", None).tasks == [Task("site-a")]

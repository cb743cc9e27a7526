"""Clients with faults that are asked for, and those that nobody means harm with."""

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pytest

from cfl_flower.client.faults import Faults, draw_fault, fault_odds, inject_fault_after
from cfl_flower.communication.validation import validate
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Answer
from clients.base import ClusteredClient


def test_faults_have_their_probabilities_and_are_the_same_in_every_run():
    odds = fault_odds(Faults(raises=0.3, drops=0.1))

    def draws(phase: str) -> list[str]:
        return [draw_fault(odds, 5, phase, r, c) for r in range(40) for c in range(50)]

    found = draws("train")
    assert found == draws("train") != draws("evaluate")
    assert found.count("raises") / 2000 == pytest.approx(0.3, abs=0.03)
    assert found.count("drops") / 2000 == pytest.approx(0.1, abs=0.03)


def sound() -> Answer:
    report = {"correct": 1, "r": np.float32([0.5, 0.5]).tobytes()}
    return Answer(1, [np.float32([1, 2])], 3, 0.1, report)


TEST = Answer(1, [], 3, 0.1, {"correct": 1})
"""Without arrays, whose shape could be wrong."""


@pytest.mark.parametrize(
    ("fault", "answer", "phase", "reply", "reason"),
    [
        ("nan", sound(), "train", (2,), "non-finite"),
        ("shape", sound(), "train", (2,), "shape"),
        ("shape", TEST, "evaluate", (), "count"),
    ],
)
def test_a_spoiled_answer_is_refused(fault, answer, phase, reply, reason):
    with pytest.raises(InvalidResultError) as caught:
        validate(inject_fault_after(fault, answer), phase, reply)
    assert caught.value.reason == reason


def test_a_spoiled_report_is_no_histogram():
    nan, short = (inject_fault_after(each, sound()) for each in ("nan", "shape"))
    assert np.isnan(np.frombuffer(nan.metrics["r"], np.float32)).all()
    assert len(short.metrics["r"]) == 4


SMALL = ["strategy=fedavg", "rounds=1", "clients=6", "participants=6", "drift=none"]
CARELESS = 3


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def leave(*_: Any) -> NoReturn:
    raise SystemExit(3)


def fail(*_: Any) -> NoReturn:
    raise SilentError


def write(result: Any, parameters: Any) -> Any:
    parameters[0][:] = 0
    return result


Change = Callable[[Any, Any], Any]


def change(monkeypatch: pytest.MonkeyPatch, method: str, how: Change) -> None:
    """Let one client change what a method of all clients returns."""
    honest = getattr(ClusteredClient, method)

    def careless(self: ClusteredClient, parameters: Any, config: Any) -> Any:
        returned = honest(self, parameters, config)
        if self.context.client != CARELESS:
            return returned
        return how(returned, parameters)

    monkeypatch.setattr(ClusteredClient, method, careless)


def first(value: Any) -> Change:
    """Return another list of arrays, or another loss."""
    return lambda result, _: (value, *result[1:])


ANY = [
    (leave, "SystemExit: 3"),
    (fail, "SilentError: its text raised ValueError"),
    (write, "read-only"),
    (lambda r, _: (r[0], r[1], {5: 1}), "names of metrics are text"),
    (lambda r, _: (r[0], r[1], {**r[2], "x": {1, 2}}), "no number and no text"),
    (lambda r, _: (r[0], object(), r[2]), "no number and no text"),
    (lambda r, _: (r[0], r[1], None), "returned"),
]
FIT = [
    *((first(arrays), "no list of arrays") for arrays in (None, 5, np.zeros(650))),
    (first([np.zeros(650)]), "not flat float32 vectors"),
    (first([np.zeros((1, 650), np.float32)]), "not flat float32 vectors"),
]
TESTS = [(first(loss), "loss=") for loss in ([1.0], None, "low", np.zeros(2))]


@pytest.mark.parametrize(
    ("method", "how", "words"),
    [
        *(("fit", *each) for each in ANY + FIT),
        *(("evaluate", *each) for each in ANY + TESTS),
    ],
)
def test_a_careless_client_costs_its_own_result(
    run_small, monkeypatch, method, how, words
):
    change(monkeypatch, method, how)
    run = run_small(*SMALL)
    (row,) = run.rounds
    assert [failure["client"] for failure in row["failures"]] == [CARELESS]
    assert words in row["failures"][0]["detail"]
    assert len(run.clients) == (5 if method == "evaluate" else 6)


def test_numbers_of_numpy_are_numbers(run_small, monkeypatch):
    plain = run_small(*SMALL, folder="plain").numbers

    def as_numpy(result: Any, _: Any) -> Any:
        first = result[0] if isinstance(result[0], list) else np.float64(result[0])
        metrics = {name: np.int64(value) for name, value in result[2].items()}
        return first, np.int64(result[1]), metrics

    change(monkeypatch, "fit", as_numpy)
    change(monkeypatch, "evaluate", as_numpy)
    assert run_small(*SMALL).numbers == plain

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
    draws = [draw_fault(odds, 5, "train", r, c) for r in range(40) for c in range(50)]
    again = [draw_fault(odds, 5, "train", r, c) for r in range(40) for c in range(50)]
    assert draws == again
    assert draws.count("raises") / 2000 == pytest.approx(0.3, abs=0.03)
    assert draws.count("drops") / 2000 == pytest.approx(0.1, abs=0.03)
    other = [
        draw_fault(odds, 5, "evaluate", r, c) for r in range(40) for c in range(50)
    ]
    assert other != draws


def sound() -> Answer:
    report = {"correct": 1, "r": np.float32([0.5, 0.5]).tobytes()}
    return Answer(1, [np.float32([1, 2])], 3, 0.1, report)


@pytest.mark.parametrize(
    ("fault", "reason"), [("nan", "non-finite"), ("shape", "shape")]
)
def test_a_spoiled_model_is_refused(fault, reason):
    answer = inject_fault_after(fault, sound())
    assert answer is not None
    with pytest.raises(InvalidResultError) as caught:
        validate(answer, "train", (2,))
    assert caught.value.reason == reason


def test_a_spoiled_report_is_no_histogram():
    nan, short = (
        inject_fault_after("nan", sound()),
        inject_fault_after("shape", sound()),
    )
    assert nan is not None
    assert short is not None
    assert np.isnan(np.frombuffer(nan.metrics["r"], np.float32)).all()
    assert len(short.metrics["r"]) == 4


def test_a_wrong_shape_of_an_answer_without_arrays_is_a_wrong_count():
    answer = inject_fault_after("shape", Answer(1, [], 3, 0.1, {"correct": 1}))
    assert answer is not None
    with pytest.raises(InvalidResultError) as caught:
        validate(answer, "evaluate", ())
    assert caught.value.reason == "count"


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


@pytest.mark.parametrize(
    ("method", "returned", "words"),
    [
        *(("fit", arrays, "no list of arrays") for arrays in (None, 5, np.zeros(650))),
        ("fit", [np.zeros(650)], "not flat float32 vectors"),
        ("fit", [np.zeros((1, 650), np.float32)], "not flat float32 vectors"),
        *(("evaluate", loss, "loss=") for loss in ([1.0], None, "low", np.zeros(2))),
    ],
)
def test_what_is_no_list_of_arrays_and_no_loss_costs_one_result(
    run_small, monkeypatch, method, returned, words
):
    change(monkeypatch, method, lambda result, _: (returned, *result[1:]))
    (row,) = run_small(*SMALL).rounds
    assert [failure["client"] for failure in row["failures"]] == [CARELESS]
    assert words in row["failures"][0]["detail"]


@pytest.mark.parametrize("method", ["fit", "evaluate"])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        (leave, "SystemExit: 3"),
        (fail, "SilentError: its text raised ValueError"),
        (write, "read-only"),
        (lambda r, _: (r[0], r[1], {5: 1}), "names of metrics are text"),
        (lambda r, _: (r[0], r[1], {**r[2], "x": {1, 2}}), "no number and no text"),
        (lambda r, _: (r[0], object(), r[2]), "no number and no text"),
        (lambda r, _: (r[0], r[1], None), "returned"),
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

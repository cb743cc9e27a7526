import numpy as np
import pytest

from cfl_flower.client.faults import (
    Faults,
    draw_fault,
    fault_odds,
    inject_fault_after,
    inject_fault_before,
)
from cfl_flower.communication.validation import validate
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Answer


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


def test_the_raises_fault_raises_an_error():
    with pytest.raises(RuntimeError, match=r"faults\.raises"):
        inject_fault_before("raises")
    inject_fault_before(None)


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

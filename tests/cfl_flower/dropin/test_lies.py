"""A node that lies to a strategy for any ClientApp costs its own result."""

from io import BytesIO
from typing import Any

import cfl_flower.strategies as plain
import numpy as np
import pytest
from flwr.app import Array, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from cfl_flower.dropin.layout import Layout
from cfl_flower.errors import CflError, InvalidResultError
from cfl_flower.mods import ASK
from tests.cfl_flower.dropin.apps import (
    KINDS,
    SEEN,
    WEIGHT,
    choosing,
    labels_of_half,
    make_app,
    record,
    start,
)

PLACES = (WEIGHT, SEEN)


def sent(name: str, array: Array) -> Any:
    """Return what puts an array into a trained model."""

    def spoil(content: RecordDict) -> RecordDict:
        arrays = record()
        arrays[name] = array
        return RecordDict({**content, "arrays": arrays})

    return spoil


def measured(**metrics: Any) -> Any:
    """Return what answers other metrics."""
    return lambda content: RecordDict({**content, "metrics": MetricRecord(metrics)})


def forged(data: bytes = b"no array", stype: str = "numpy.ndarray") -> Array:
    return Array(dtype="float64", shape=(2, 3), stype=stype, data=data)


def bomb() -> bytes:
    """Return the header of an array that no memory holds."""
    file = BytesIO()
    shape = (10**9, 10**6)
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def zipped(**arrays: Any) -> bytes:
    """Return the bytes of an .npz file, which NumPy reads, too."""
    file = BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def far(content: RecordDict) -> RecordDict:
    """Return weights that no sum holds, and a counter that is above all others."""
    weight = np.full((2, 3), 1e12)
    return RecordDict({**content, "arrays": record(weight=weight, seen=np.array(9))})


ZIPS = [zipped(a=np.zeros(1)), zipped(arr_0=np.zeros((2, 3))), zipped()]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda content: 1 / 0, "node"),
        *((sent(name, forged(each)), "shape") for each in ZIPS for name in PLACES),
        (lambda content: RecordDict({"arrays": content["arrays"]}), "num-examples"),
        (sent("layer.bias", Array(np.zeros(3))), "shape"),
        (sent(WEIGHT, Array(np.zeros(3))), "shape"),
        (sent(WEIGHT, Array(np.full((2, 3), np.nan))), "non-finite"),
        (sent(WEIGHT, Array(np.full((2, 3), 1e30))), "non-finite"),
        (far, "range"),
        (sent(WEIGHT, forged()), "shape"),
        (sent(WEIGHT, forged(bomb())), "shape"),
        (sent(WEIGHT, forged(bytes(10**5))), "shape"),
        (sent(WEIGHT, forged(stype="pickle")), "shape"),
        (sent(WEIGHT, Array(np.full((2, 3), "cat"))), "shape"),
        (sent(WEIGHT, Array(np.full((2, 3), 1j))), "shape"),
        (sent(WEIGHT, Array(np.full((2, 3), 1))), "shape"),
        (sent(SEEN, Array(np.array(np.nan))), "shape"),
        (sent(SEEN, Array(np.array("cat"))), "shape"),
        (measured(**{"num-examples": 3, "accuracy": [1.0, 2.0]}), "metrics"),
        (measured(**{"num-examples": 3, "other": 1.0}), "metrics"),
        (measured(**{"num-examples": 3, "accuracy": np.nan}), "metrics"),
        (measured(**{"num-examples": 3, "accuracy": -np.inf}), "metrics"),
        (measured(**{"num-examples": [3]}), "num-examples"),
        (measured(**{"num-examples": -3}), "num-examples"),
        (measured(**{"num-examples": float("nan")}), "num-examples"),
    ],
)
def test_a_node_that_lies_costs_its_own_result(spoil, reason):
    def honest(content: RecordDict) -> RecordDict:
        content["metrics"]["accuracy"] = 0.5
        return content

    def lie(content: RecordDict) -> RecordDict:
        content["metrics"]["accuracy"] = 0.1
        return spoil(content) if "arrays" in content else honest(content)

    answers = {0: honest, 1: honest, 2: lie, 3: honest}
    # StoCFL adds up, and a sum has bounds.
    kind = plain.StoCFL if reason == "range" else plain.FedAvg
    found = start(make_app(answers=answers), kind, rounds=2)
    for failures in found.failures.values():
        assert {each.client for each in failures} == {1002}
        assert failures[0].reason == reason
        assert "\n" not in failures[0].detail
    assert found.train_metrics_clientapp[2]["accuracy"] == pytest.approx(0.5)
    assert np.isfinite(found.arrays[WEIGHT].numpy()).all()
    assert spoil is not far or found.arrays[SEEN].numpy() == 1


def test_an_app_that_is_wrong_everywhere_ends_in_one_line():
    def forget(content: RecordDict) -> RecordDict:
        return RecordDict({"arrays": content["arrays"]} if "arrays" in content else {})

    app = make_app(answers=dict.fromkeys(range(4), forget))
    words = r"num-examples=None, which .*; fix the app, and start again"
    with pytest.raises(CflError, match=words) as found:
        start(app)
    assert "\n" not in str(found.value)


def test_a_counter_that_lies_is_nobody_elses():
    lie = sent(SEEN, Array(np.array(2**62)))
    answers = {2: lambda content: lie(content) if "arrays" in content else content}
    found = start(make_app(answers=answers), rounds=2)
    assert found.arrays[SEEN].numpy() == 3


def lying(app: ClientApp, told: dict[str, Any]) -> Any:
    """Return an app whose third node tells a method something else."""

    def lie(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if context.node_id == 1002 and ASK in reply.content:
            reply.content[ASK] = ConfigRecord(told)
        return reply

    return lie


@pytest.mark.parametrize(
    "report",
    [
        {"representation": 1.5},
        {"representation": "cat"},
        {"representation": np.full(4, np.nan, np.float32).tobytes()},
        {"representation": np.full(400, 1 / 400, np.float32).tobytes()},
        {"other": 1},
    ],
)
def test_a_report_that_lies_is_nobody_elses(report):
    app = lying(make_app(labels_of_half), {"samples": 3, **report})
    found = start(app, plain.Fielding, significance=0.0)
    assert found.clusters == {1000: 0, 1001: 1, 1003: 1}
    assert {each.client for each in found.failures[1]} == {1002}


ONES = np.ones(1, np.float32).tobytes()
HONEST = {"chosen": 0, "step": 1, "losses": ONES, "counts": ONES}
LIES: list[tuple[Any, dict[str, Any]]] = [
    *(
        (kind, {"cluster": one, "chosen": other})
        for kind in KINDS
        for one, other in ((2, 2), (-1, -2), (1.0, 0.0), (True, False), ("1", "0"))
    ),
    *((kind, {}) for kind in KINDS),
    *(
        (plain.FedDrift, {**HONEST, **lie})
        for lie in (
            {"losses": np.full(1, np.nan, np.float32).tobytes()},
            {"losses": np.full(1, -1, np.float32).tobytes()},
            {"losses": np.zeros(4, np.float32).tobytes()},
            {"losses": [0.0]},
            {"counts": np.full(1, np.inf, np.float32).tobytes()},
            {"counts": np.zeros(1, np.float32).tobytes()},
            {"step": 99},
            {"step": "1"},
        )
    ),
]


@pytest.mark.parametrize(("kind", "choice"), LIES)
def test_a_choice_that_lies_is_nobody_elses(kind, choice):
    found = start(lying(choosing(), choice), kind, **KINDS[kind])
    for failures in found.failures.values():
        assert [each.client for each in failures] == [1002]
        assert failures[0].reason == "representation"
        assert "\n" not in failures[0].detail
    assert np.isfinite(found.arrays[WEIGHT].numpy()).all()


@pytest.mark.parametrize(
    ("initial", "value"),
    [
        (np.zeros(1, np.float16), np.full(1, 7e4, np.float32)),
        (np.zeros(1, np.int32), np.full(1, 2**31, np.int64)),
        (np.array(["abc"]), np.array(["abcd"])),
    ],
)
def test_what_the_initial_type_cannot_hold_is_refused(initial, value):
    layout = Layout.of(record(odd=initial))
    with pytest.raises(InvalidResultError, match=f"must be finite {initial.dtype}"):
        layout.read(record(odd=value))
    model, others = layout.read(record(odd=initial))
    assert layout.write(model, others) == record(odd=initial)

"""The checks that turn a client's answer into a result; nothing is trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cfl_flower.errors import InvalidResultError
from cfl_flower.learning.outcomes import read_outcomes
from cfl_flower.types import (
    EPOCHS,
    FURTHER_TESTS,
    LEFT_OUT,
    OUTCOMES,
    PASSES,
    START_LOSSES,
    TELEMETRY,
    Answer,
    Result,
    Scalar,
    Vector,
)

LARGEST = 1e15
"""Beyond it, squares and sums of float32 numbers may be infinite."""

LARGEST_COUNT = 2**40

NUMBERS = (int, float)
TEXTS = (str, bytes)
"""Types of what a metric may be; true and false are whole numbers, too."""


def validate_count(count: object, least: int) -> int:
    """Return a number of samples, or raise `InvalidResultError`."""
    # Python's true and false are whole numbers, too.
    if not isinstance(count, int) or isinstance(count, bool):
        raise InvalidResultError("count", f"num_examples={count!r:.40} is not whole")
    if not least <= count <= LARGEST_COUNT:
        raise InvalidResultError("count", f"num_examples={count!r:.40}, not >= {least}")
    return count


def validate(
    answer: Answer,
    phase: str,
    reply: tuple[int, ...],
    asked: Mapping[str, Scalar] | None = None,
) -> Result:
    """Turn an answer into a result, or say why it must not enter any state.

    A ``train`` answer must have trained on at least one sample. ``reply`` has the
    length of each array; ``asked`` is the plan's config, which may name `START_LOSSES`
    and `OUTCOMES`.

    Raises
    ------
    InvalidResultError
        For arrays of another number, length or type, a count that is no count, a
        metric that is no scalar, a loss that was asked for and is none, a measure of
        the engine that is no number of at least 0, or anything that is not finite or
        beyond `LARGEST`.
    """
    if answer.error is not None:
        raise InvalidResultError(*answer.error)
    if answer.arrays or reply:
        _validate_arrays(answer.arrays, reply)
    count = validate_count(answer.num_examples, 1 if phase == "train" else 0)
    loss = answer.loss
    if loss is not None:
        if not isinstance(loss, NUMBERS):
            raise InvalidResultError("shape", f"loss={loss!r:.40} is not a number")
        _validate_size("loss", loss)
    metrics: dict[str, Scalar] = {}
    telemetry: dict[str, Scalar] = {}
    for name, value in answer.metrics.items():
        if isinstance(value, NUMBERS):
            _validate_size(name, value)
        elif not isinstance(value, TEXTS):
            kind = type(value).__name__
            raise InvalidResultError("shape", f"{name:.40} is a {kind}, no scalar")
        kept = telemetry if name in TELEMETRY else metrics
        kept[name] = value
    _validate_measured(answer, asked or {})
    if phase == "evaluate":
        _validate_test(answer)
        _validate_outcomes(answer, asked or {})
    arrays = list(answer.arrays)
    return Result(answer.client, count, arrays, loss, metrics, telemetry=telemetry)


def _validate_size(name: str, number: float) -> None:
    if not abs(number) <= LARGEST:
        raise InvalidResultError("non-finite", f"{name:.40} is NaN or too large")


def asks_for_losses(config: Mapping[str, Scalar]) -> bool:
    """Return whether the server weights or selects by losses at a round's start."""
    return any(config.get(name) for name in START_LOSSES)


def is_bounded(array: Vector) -> bool:
    """Return whether all numbers are finite, and none beyond `LARGEST`."""
    # One fast pass for nearly all: what is NaN or too large would be in this sum. It is
    # refused below, which is no warning.
    with np.errstate(invalid="ignore", over="ignore"):
        if array.ndim == 1 and array.dot(array) <= LARGEST:
            return True
    # NaN is neither; the two ends need no copy of the array, as its absolute would.
    return not array.size or bool(array.max() <= LARGEST and array.min() >= -LARGEST)


def _validate_arrays(arrays: Sequence[Vector], reply: tuple[int, ...]) -> None:
    lengths = tuple(array.shape for array in arrays)
    if lengths != tuple((length,) for length in reply):
        raise InvalidResultError("shape", f"arrays of shapes {lengths}, not {reply}")
    if any(array.dtype != np.float32 for array in arrays):
        kinds = [str(array.dtype) for array in arrays]
        raise InvalidResultError("shape", f"arrays of types {kinds}, not float32")
    if not all(map(is_bounded, arrays)):
        detail = f"arrays with NaN, infinity or numbers beyond {LARGEST:g}"
        raise InvalidResultError("non-finite", detail)


def _validate_measured(answer: Answer, asked: Mapping[str, Scalar]) -> None:
    """Refuse what clocks and weights cannot be made of, whether asked for or not."""
    for name in (PASSES, EPOCHS, *START_LOSSES):
        told = answer.metrics.get(name, None if name in asked else 0)
        number = isinstance(told, NUMBERS) and not isinstance(told, bool)
        if not number or not told >= 0:  # type: ignore[operator]
            detail = f"{name}={told!r:.40}, not a number of at least 0"
            raise InvalidResultError("representation", detail)


def _validate_test(answer: Answer) -> None:
    if answer.num_examples == 0:
        return
    correct = answer.metrics.get("correct")
    loss = answer.loss
    whole = isinstance(correct, int) and not isinstance(correct, bool)
    if not whole or not 0 <= correct <= answer.num_examples:  # type: ignore[operator]
        detail = f"correct={correct!r} of {answer.num_examples} tested samples"
        raise InvalidResultError("shape", detail)
    if not isinstance(answer.metrics.get("empty", False), bool):
        raise InvalidResultError("shape", "empty is neither true nor false")
    for name in FURTHER_TESTS:
        tested = answer.metrics.get(f"{name}_tested", 0)
        right = answer.metrics.get(f"{name}_correct", None if tested else 0)
        counts = isinstance(right, int) and isinstance(tested, int)
        if not counts or not 0 <= right <= tested:  # type: ignore[operator]
            detail = f"{name}_correct={right!r} of {tested!r} {name} tested samples"
            raise InvalidResultError("shape", detail)
    if not isinstance(loss, int | float):
        raise InvalidResultError("shape", f"loss={loss!r} is not a number")


def _validate_outcomes(answer: Answer, asked: Mapping[str, Scalar]) -> None:
    classes = asked.get(OUTCOMES)
    sent = answer.metrics.get(OUTCOMES)
    if not classes or not answer.num_examples or sent == LEFT_OUT:
        return
    try:
        read_outcomes(sent, int(classes), answer.num_examples)
    except ValueError as error:
        raise InvalidResultError("test", f"{OUTCOMES}: {error}") from error


def check_test(metrics: Mapping[str, Scalar], name: str) -> None:
    """Raise `InvalidResultError` unless a client's own test is a valid one, or absent.

    Its metrics are ``NAME_tested``, ``NAME_correct`` and ``NAME_loss``.
    """
    keys = [f"{name}_{key}" for key in ("tested", "correct", "loss")]
    if not metrics.keys() & set(keys):
        return
    values = [metrics.get(key) for key in keys]
    tested, correct, loss = values
    whole = isinstance(tested, int) and isinstance(correct, int)
    finite = isinstance(loss, float) and math.isfinite(loss)
    if not (whole and finite and 0 <= correct <= tested):  # type: ignore[operator]
        pairs = zip(keys, values, strict=True)
        detail = ", ".join(f"{key}={value!r}" for key, value in pairs)
        raise InvalidResultError("test", detail)

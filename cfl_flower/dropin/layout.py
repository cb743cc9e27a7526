"""An app's arrays, of whatever framework, as the vector that methods compute with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from cfl_flower.communication.validation import is_bounded
from cfl_flower.errors import InvalidResultError
from cfl_flower.settings import require
from cfl_flower.types import Vector

HEADER_BYTES = 4096
"""Bytes that an array may have beside its numbers: NumPy's header."""

Others = dict[str, NDArray[Any]]
"""The arrays that are no real numbers, by their names."""


@dataclass(frozen=True)
class Layout:
    """The names, shapes and types of an app's arrays, in their order.

    Arrays of real numbers are the model. All others, such as the counters of
    BatchNorm, are no numbers to average: see `middle`.
    """

    templates: Others

    @classmethod
    def of(cls, record: ArrayRecord) -> Self:
        """Return the layout of an app's initial arrays."""
        layout = cls({name: array.numpy() for name, array in record.items()})
        ok = any(each.dtype.kind == "f" for each in layout.templates.values())
        allowed = "an array of real numbers at least, as ArrayRecord(net.state_dict())"
        require(ok, "initial_arrays", sorted(record), allowed)
        for name, each in layout.templates.items():
            field = f"initial_arrays: {name}"
            allowed = "its real and its imaginary part, or float32 for bfloat16"
            require(each.dtype.kind not in "cV", field, each.dtype, allowed)
        return layout

    def describe(self) -> dict[str, str]:
        """Return the place, type and shape of each array, by its name."""
        named = enumerate(self.templates.items(), start=1)
        return {n: f"array {k}, {each.dtype}{each.shape}" for k, (n, each) in named}

    def read(self, record: ArrayRecord) -> tuple[Vector, Others]:
        """Return the model in a record, shape (d,), and the other arrays.

        Raises `InvalidResultError` unless it has this layout, and is finite.
        """
        if record.keys() != self.templates.keys():
            odd = sorted(record.keys() ^ self.templates.keys())[:4]
            detail = f"arrays: {odd} are in the initial arrays or in these, not in both"
            raise InvalidResultError("shape", detail)
        parts = []
        others = {}
        for name, template in self.templates.items():
            array = _decode(name, record[name], template)
            with np.errstate(over="ignore"):
                own = array.astype(template.dtype)
                if own.dtype.kind == "f":
                    parts.append(array.astype(np.float32).ravel())
                    ok = is_bounded(parts[-1]) and bool(np.isfinite(own).all())
                else:
                    others[name] = own
                    ok = np.array_equal(own, array)
            if not ok:
                bounds = f"numbers must be finite {own.dtype}, and none beyond 1e+15"
                raise InvalidResultError("non-finite", f"arrays: {name}: {bounds}")
        vector: Vector = np.concatenate(parts)
        return vector, others

    def write(self, vector: Vector, others: Others) -> ArrayRecord:
        """Return a model as an app's arrays, in their own types."""
        start = 0
        record = {}
        for name, template in self.templates.items():
            array = others.get(name, template)
            if template.dtype.kind == "f":
                array = vector[start : start + template.size].astype(template.dtype)
                start += template.size
            record[name] = Array(np.array(array.reshape(template.shape), order="C"))
        return ArrayRecord(record)


def _decode(name: str, array: Array, template: NDArray[Any]) -> NDArray[Any]:
    """Return what a node sent in the place of a template, trusting nothing."""
    # NumPy would first take the memory that a forged header asks for.
    most = template.size * max(template.itemsize, 8) + HEADER_BYTES
    if len(array.data) > most:
        size = f"{len(array.data)} bytes, of at most {most}"
        detail = f"arrays: {name} is {array.dtype}{array.shape} of {size}"
        raise InvalidResultError("shape", detail)
    try:
        found = array.numpy()
        form = (found.shape, found.dtype.kind)
    except Exception as error:
        # Whatever NumPy says of bytes that are no array, or a zip of some.
        detail = f"arrays: {name} cannot be read ({type(error).__name__})"
        raise InvalidResultError("shape", detail) from error
    if form != (template.shape, template.dtype.kind):
        sent = f"arrays: {name} is {found.dtype}{found.shape}"
        detail = f"{sent}, not {template.dtype}{template.shape}"
        raise InvalidResultError("shape", detail)
    return found


def middle(each: Sequence[Others]) -> Others:
    """Return the median of each number over some participants, the upper of two.

    One node that lies about a counter does not set it for all others.
    """
    # Arrays, as those of a single number, of which NumPy makes another type, too.
    return {
        name: np.asarray(np.sort([own[name] for own in each], axis=0)[len(each) // 2])
        for name in each[0]
    }

"""An app's arrays, of whatever framework, as the vector that methods compute with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from flwr.app import Array, ArrayRecord

from cfl_flower.errors import ConfigError, InvalidResultError
from cfl_flower.types import Vector


@dataclass(frozen=True)
class Layout:
    """The names, shapes and types of an app's arrays, in their order.

    Arrays of real numbers are the model. All others, such as the counters of
    BatchNorm, are no numbers to average: every model has the largest that a participant
    returned.
    """

    templates: dict[str, np.ndarray[Any, Any]]

    @classmethod
    def of(cls, record: ArrayRecord) -> Self:
        """Return the layout of an app's initial arrays."""
        layout = cls({name: array.numpy() for name, array in record.items()})
        if not layout.real:
            raise ConfigError(
                f"initial_arrays={sorted(record)} is not allowed; use a record with "
                "at least one array of real numbers, such as "
                "ArrayRecord(net.state_dict())"
            )
        return layout

    @property
    def real(self) -> list[str]:
        """The names of the arrays of real numbers."""
        arrays = self.templates.items()
        return [name for name, each in arrays if each.dtype.kind == "f"]

    def others(self, record: ArrayRecord) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays that are no real numbers."""
        real = set(self.real)
        return {n: each.numpy() for n, each in record.items() if n not in real}

    def read(self, record: ArrayRecord) -> Vector:
        """Return the model in a record, shape (d,), trusting nothing.

        Raises `InvalidResultError` unless it has this layout, and is finite.
        """
        if record.keys() != self.templates.keys():
            odd = sorted(record.keys() ^ self.templates.keys())
            detail = f"arrays: {odd[0]} is not in both, the initial arrays and these"
            raise InvalidResultError("shape", detail)
        found = {name: array.numpy() for name, array in record.items()}
        for name, template in self.templates.items():
            shape = found[name].shape
            if shape != template.shape:
                detail = f"arrays: {name} has the shape {shape}, not {template.shape}"
                raise InvalidResultError("shape", detail)
        parts = [found[name].astype(np.float32).ravel() for name in self.real]
        vector: Vector = np.concatenate(parts)
        if not np.isfinite(vector).all():
            raise InvalidResultError("non-finite", "arrays: numbers must be finite")
        return vector

    def write(
        self, vector: Vector, others: dict[str, np.ndarray[Any, Any]]
    ) -> ArrayRecord:
        """Return a model as an app's arrays, in their own types."""
        start = 0
        record = {}
        for name, template in self.templates.items():
            array = others.get(name, template)
            if template.dtype.kind == "f":
                part = vector[start : start + template.size]
                array = part.reshape(template.shape).astype(template.dtype)
                start += template.size
            record[name] = Array(np.ascontiguousarray(array))
        return ArrayRecord(record)

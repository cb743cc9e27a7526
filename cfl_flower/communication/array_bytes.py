"""Arrays as Flower's messages carry them, written and read with one copy or none."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from flwr.app import Array

from cfl_flower.types import (
    IntArray,
    Vector,
)


def encode(shape: tuple[int, ...], parts: Sequence[Vector | IntArray]) -> Array:
    """Encode arrays end to end, as Flower would one of this shape, but copy once."""
    # Concatenating them and writing the result to a stream holds four times the bytes.
    header = io.BytesIO()
    dtype = parts[0].dtype if parts else np.dtype(np.float32)
    described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    raw = [np.ascontiguousarray(part).data for part in parts]
    data = b"".join([header.getvalue(), *raw])
    return Array(dtype.name, shape, "numpy.ndarray", data)


HEADER_LENGTH = 2**10
"""Bytes in which the header of an array ends."""


def decode(array: Array) -> Any:
    """Return an array as a view of its bytes, which cannot be written into.

    Raises `ValueError` for a header that promises something else than there is.
    """
    # Flower's way would copy all of it.
    stream = io.BytesIO(array.data[:HEADER_LENGTH])
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array in another format than numpy's 1.0")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    there = len(array.data) - stream.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != there:
        raise ValueError(f"an array {dtype}{shape} of {there} bytes")
    if by_columns:
        raise ValueError("an array by columns")
    return np.frombuffer(array.data, dtype, offset=stream.tell()).reshape(shape)

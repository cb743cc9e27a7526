"""From a column of a table to times."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from cfl_flower.data.datasets.columns import refuse
from cfl_flower.errors import intact
from cfl_flower.types import IntArray

COMPACT = re.compile(
    r"(19|20)\d\d(0[1-9]|[1-4]\d|5[0-3])"
    r"|(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(([01]\d|2[0-3])([0-5]\d){,2})?"
    r"|(0?[1-9]|[12]\d|3[01])(0[1-9]|1[0-2])(19|20)\d\d"
    # A day of a year; then years of two digits, where a number has lost its first 0.
    r"|(19|20)\d\d(00[1-9]|0[1-9]\d|[12]\d\d|3[0-5]\d|36[0-6])"
    r"|\d?\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])"
    r"|(0?[1-9]|[12]\d|3[01])(0[1-9]|1[0-2])\d\d"
)
"""A year with a month, week or day, or a date, perhaps with a time, in digits alone."""

ZONE = re.compile(r"\d\d:\d\d.*(?:Z|[+-]\d\d(?::?\d\d)?)$")
"""The end of a time that says its zone."""

ALIKE = (
    "write integers or dates such as 2024-01-31, all alike, or name the format in "
    "dataset.time_format: %d.%m.%Y for 31.01.2024, %Y%m%d for 20240131, %y%m%d "
    "for 240131"
)

INTEGER = "integer"
"""The format of times that are no dates, though they look like some."""


def moments(times: pd.Series, form: str | None = None) -> IntArray:
    """Return integers, or dates in microseconds since 1970, or raise `ConfigError`.

    The index of the rows has their tables and places; ``form`` is the dates' format.
    """
    numbers = pd.to_numeric(times, errors="coerce")
    if pd.api.types.is_bool_dtype(numbers):
        refuse(times, times.notna(), f"is no time; {ALIKE}")
    typed = pd.api.types.is_datetime64_any_dtype(times)
    if typed or numbers.isna().all() or form not in (None, INTEGER):
        return _dated(times if typed else times.astype(str).str.strip(), form)
    wrong = ~((numbers == np.rint(numbers)) & (np.abs(numbers) < 2**63))
    refuse(times, wrong, f"is no integer as in other rows; {ALIKE}")
    # Not through float64: nanoseconds have more digits.
    found = numbers.astype(np.int64)
    if not form and all(map(COMPACT.fullmatch, map(str, found.unique()))):
        why = f"looks like a date; {ALIKE}, or say {INTEGER} there if it is none"
        refuse(times, found.notna(), why)
    return np.asarray(found)


def _dated(times: pd.Series, form: str | None) -> IntArray:
    """Return dates in microseconds since 1970, or raise `ConfigError`."""
    zones = times.astype(str).str.contains(ZONE)
    if zones.any():
        refuse(times, ~zones, f"has no time zone as other rows have; {ALIKE}")
    form = form or "ISO8601"
    with intact(f"dataset.time_format={form}", "use the letters of Python's strftime"):
        found = pd.to_datetime(times, utc=True, format=form, errors="coerce")
    refuse(times, found.isna(), f"is no date in the format {form}; {ALIKE}")
    return found.to_numpy("datetime64[us]").astype(np.int64)

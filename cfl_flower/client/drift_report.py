"""Reports about a client's data: what the server asks, what a client reports and when.

The server reads a report by `DriftReport.from_metrics`, which trusts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from cfl_flower.client.context import ClientContext
from cfl_flower.client.model_privacy import noise_generator
from cfl_flower.client.requests import Request
from cfl_flower.clustering.representations import (
    digest,
    label_histogram,
    parse_vector,
)
from cfl_flower.errors import InvalidResultError
from cfl_flower.settings import require
from cfl_flower.types import REPORT, FloatArray, IntArray, Result, Scalar, Vector

HELD = "held"
"""Key of a task's config: the digest of the representation that the server holds."""


@dataclass(frozen=True)
class ReportRequest(Request):
    """A request to report the representation of a client's data if it changed."""

    representation: str
    """Its kind, such as ``label_histogram``; empty for no report."""
    tolerance: float = 0.0
    """The change up to which a client keeps silent."""
    shared_model: str = ""
    """The digest of the model that represents data, if the kind needs one."""
    held: str = ""
    """The digest of the representation that the server holds; empty if it has none. A
    plan's config has none, and each task's its own, under `HELD`."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        """Return the request of a task's config; None if nothing is to be reported."""
        return cls.from_config(config) if config.get(REPORT) else None


@dataclass(frozen=True)
class DriftReport:
    """What a client reports about its data."""

    representation: Vector
    num_examples: int
    """The number of samples behind it."""

    def to_metrics(self) -> dict[str, Scalar]:
        """Return the report as metrics of a reply, the representation as bytes."""
        data = np.ascontiguousarray(self.representation, np.float32).tobytes()
        return {"representation": data, "samples": self.num_examples}

    @classmethod
    def from_metrics(
        cls, metrics: Mapping[str, Any], length: int, kind: str
    ) -> DriftReport:
        """Read a report of a representation of some length and kind, trusting nothing.

        Raises `InvalidResultError` if the representation is not that many finite
        float32 numbers, or the number of samples is no number.
        """
        count = metrics.get("samples")
        vector = parse_vector(metrics.get("representation"), length, kind)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InvalidResultError("representation", f"samples={count!r}, not >= 0")
        return cls(vector, count)

    @staticmethod
    def stack(results: Sequence[Result]) -> tuple[FloatArray, IntArray]:
        """Return the reported representations, (m, L), and their samples, (m,)."""
        reports: list[DriftReport] = [result.report for result in results]
        points = np.stack([report.representation for report in reports])
        return points, np.array([report.num_examples for report in reports], np.int64)


def report_drift(
    context: ClientContext,
    request: ReportRequest,
    seen: Vector,
    samples: int,
    changed: Callable[[Vector, Vector, float], bool],
) -> dict[str, Scalar]:
    """Return the report of what a client saw, as metrics; empty if nothing is new.

    ``changed(last, now, tolerance)`` tells whether a representation differs from an
    earlier one by more than is tolerated. What is compared is what the client saw,
    before the noise. If the server has not the last report, this one is remembered.
    """
    protected = protect(context, seen, samples)
    if digest(protected) == request.held:
        return {}
    if request.tolerance:
        state = context.state.part("report")
        upcoming = context.upcoming
        remembered = state.load(before=upcoming)
        last = remembered.get("reported")
        known = last is not None and digest(last) == request.held
        before = np.asarray(remembered.get("seen", last))
        if known and not changed(before, seen, request.tolerance):
            return {}
        noisy = {} if protected is seen else {"seen": seen}
        state.save(upcoming - 1, {"reported": protected, **noisy})
    return DriftReport(protected, samples).to_metrics()


def protect(context: ClientContext, histogram: Vector, samples: int) -> Vector:
    """Return a histogram with noise, if privacy is enabled and it is of any samples.

    The noise follows from the data, so that they look unchanged while they are.
    """
    noise = getattr(context.settings, "privacy", None)
    if noise is None or not noise.on or samples == 0:
        return histogram
    purpose = f"privacy/{digest(histogram)}/{samples}"
    rng = noise_generator(context, purpose, noise)
    return noise.protect(histogram, samples, rng)


def count_labels(context: ClientContext) -> DriftReport:
    """Return the report of labels alone, as a device counts them itself."""
    labels = context.view(context.upcoming).labels
    histogram = label_histogram(labels, context.stream.classes)
    return DriftReport(protect(context, histogram, len(labels)), len(labels))


def read_labels(found: ArrayLike, classes: int) -> IntArray:
    """Return labels as an array, shape (n,).

    Raises `ConfigError` unless they are whole numbers from 0 to ``classes`` - 1.
    """
    own = np.asarray(found)
    allowed = f"a list of whole numbers from 0 to {classes - 1} (classes={classes})"
    ok = own.ndim == 1 and (own.dtype.kind in "iu" or own.size == 0)
    require(ok, "labels", own.ravel()[:3].tolist(), allowed)
    beyond = own[(own < 0) | (own >= classes)]
    require(beyond.size == 0, "labels", beyond[:3].tolist(), allowed)
    return own.astype(np.int64)

"""When a real device uploads, which CCFL leaves to the client."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from cfl_flower.settings import Natural, NonNegative, Positive, settings
from cfl_flower.types import FloatArray

TRIGGER = ".upload"
"""A file in a device's data folder; touching it requests an immediate upload."""


@settings("strategy")
class UploadPolicy:
    """Conditions of which one must be met before a device uploads; 0 disables one.

    Without conditions, uploads are immediate.
    """

    drift: NonNegative = 0.0
    """The label histogram changed by this much (L1) since the last upload."""
    samples: Natural = 0
    """This many more, or fewer, samples than at the last upload."""
    wait: NonNegative = 0.0
    """This many seconds have passed since the task was received."""
    poll: Positive = 5.0
    """Seconds between two checks."""

    @property
    def holds(self) -> bool:
        """Whether uploads are ever delayed."""
        return bool(self.drift or self.samples or self.wait)

    @property
    def longest(self) -> float:
        """The seconds by which an upload may be delayed; infinite without `wait`."""
        return (self.wait or math.inf) if self.holds else 0.0

    def due(self, before: FloatArray, now: FloatArray, waited: float) -> bool:
        """Return whether an upload is due ``waited`` seconds after the task came.

        ``before`` and ``now`` are the samples of each label, shape (L,), at the last
        upload and at present.

        Examples
        --------
        >>> policy = UploadPolicy(drift=0.5, samples=100, wait=60)
        >>> policy.due(np.array([30, 10]), np.array([31, 12]), 5)
        False
        >>> policy.due(np.array([30, 10]), np.array([30, 50]), 5)
        True
        """
        if self.wait and waited >= self.wait:
            return True
        counts = before.sum(), now.sum()
        if self.samples and abs(counts[1] - counts[0]) >= self.samples:
            return True
        change = np.abs(now / max(counts[1], 1) - before / max(counts[0], 1)).sum()
        return bool(self.drift and change >= self.drift)


def touched(folder: Path) -> int:
    """Return when the trigger was last touched, in ns since 1970; 0 if never."""
    try:
        return (folder / TRIGGER).stat().st_mtime_ns
    except FileNotFoundError:
        return 0

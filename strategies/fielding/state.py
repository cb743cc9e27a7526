"""What Fielding's server remembers from round to round."""

from __future__ import annotations

from dataclasses import dataclass, field

from cfl_flower.state import ClusteredState
from cfl_flower.types import FloatArray, IntArray
from strategies.fielding.threshold import Trials


@dataclass
class FieldingState(ClusteredState):
    """Fielding's state; L is the length of a representation."""

    representations: FloatArray
    """The latest representation of each client, shape (n, L)."""
    counts: IntArray
    """The number of samples behind it, shape (n,)."""
    reports: IntArray
    """The number of each client's reports so far, shape (n,)."""
    centres: FloatArray
    """The centre of each cluster, shape (K, L)."""
    reference: FloatArray
    """The centres at the last re-clustering, shape (K, L)."""
    heterogeneity: float | None = None
    """The mean client distance, as of the last change of clusters or reports."""
    delta: float | None = None
    """Delta of Appendix F.2; None before the first drift event."""
    consecutive: int = 0
    """Drift events in a row that led to re-clustering (Appendix F.2)."""
    trials: Trials = field(default_factory=Trials)
    """What was observed of the thresholds (Appendix F.1)."""

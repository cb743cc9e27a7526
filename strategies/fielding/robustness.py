"""Protection of clusters against forged reports: `strategy/robustness`.

Beyond the paper: trimmed means as centres, and one common cluster of the clients whose
clusters are too small, so that forged representations neither move centres nor open
clusters.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from pydantic import Field

from cfl_flower.settings import Count, settings


@settings("strategy.robustness")
class PlainMeans:
    """Centres are means and clusters may be of any size, as in the paper."""

    name: ClassVar[str] = "none"
    trim: ClassVar[float] = 0.0
    least_members: ClassVar[int] = 1


@settings("strategy.robustness")
class TrimmedMeans:
    """Centres are trimmed means, and small clusters are put together."""

    name: ClassVar[str] = "trimmed"

    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.25
    """Share of a cluster's members that is ignored in each coordinate of its centre, at
    either end."""
    least_members: Count = 2
    """Clusters of fewer clients are put together."""


Robustness: TypeAlias = PlainMeans | TrimmedMeans

"""Protection of clusters against forged reports: `strategy/robustness`.

Beyond the paper: trimmed means, and one common cluster for clients that are like no
other, so that forged representations neither move centres nor open clusters.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

from pydantic import Field

from cfl_flower.clustering.algorithms import put_stragglers_together
from cfl_flower.clustering.representations import Distance
from cfl_flower.settings import Count, settings
from cfl_flower.types import FloatArray, IntArray


@settings("strategy.robustness")
class PlainMeans:
    """Centres are means and clusters may be of any size, as in the paper."""

    name: ClassVar[str] = "none"
    trim: ClassVar[float] = 0.0

    def merge_small(
        self, points: FloatArray, clusters: IntArray, distance: Distance
    ) -> IntArray:
        """Return the clusters as they are."""
        return clusters


@settings("strategy.robustness")
class TrimmedMeans:
    """Centres are trimmed means, and small clusters are put together."""

    name: ClassVar[str] = "trimmed"

    trim: Annotated[float, Field(ge=0, lt=0.5)] = 0.25
    """Share of a cluster's members that is ignored in each coordinate of its centre, at
    either end."""
    least_members: Count = 2
    """Clusters of fewer clients are put together."""

    def merge_small(
        self, points: FloatArray, clusters: IntArray, distance: Distance
    ) -> IntArray:
        """Return the clusters, (n,), with one common cluster of those too small."""
        return put_stragglers_together(points, clusters, self.least_members, distance)


Robustness: TypeAlias = PlainMeans | TrimmedMeans

"""The frame of methods under its name of the first release: `cfl_flower.engine`."""

from cfl_flower.engine.method import (
    ClusteredState,
    ClusteredStrategy,
    Description,
    Disclosure,
    Published,
    StrategySettings,
    Supports,
    no_clusters,
)

__all__ = [
    "ClusteredState",
    "ClusteredStrategy",
    "Description",
    "Disclosure",
    "Published",
    "StrategySettings",
    "Supports",
    "no_clusters",
]

"""Fielding: per-client moves plus selective global re-clustering."""

from strategies.fielding.method import (
    Fielding,
    FieldingSettings,
    cluster_clients,
    set_centres,
)
from strategies.fielding.reclustering import FieldingState

__all__ = [
    "Fielding",
    "FieldingSettings",
    "FieldingState",
    "cluster_clients",
    "set_centres",
]

"""Fielding: per-client moves plus selective global re-clustering."""

from strategies.fielding.method import (
    Fielding,
    FieldingSettings,
    FieldingState,
    cluster_clients,
    set_centres,
)

__all__ = [
    "Fielding",
    "FieldingSettings",
    "FieldingState",
    "cluster_clients",
    "set_centres",
]

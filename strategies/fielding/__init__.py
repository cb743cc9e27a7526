"""Fielding: per-client moves plus selective global re-clustering."""

from strategies.fielding.method import Fielding, FieldingSettings

__all__ = ["Fielding", "FieldingSettings"]

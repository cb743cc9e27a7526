"""The method, Algorithms 1 to 3 of the paper."""

from strategies.fielding import Fielding

__all__ = ["Fielding"]

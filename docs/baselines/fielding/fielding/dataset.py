"""The data: digits, their partition by groups of labels, and the drift."""

from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.worlds.drift import Regroup
from cfl_flower.data.worlds.partition import LabelGroups

__all__ = ["Digits", "LabelGroups", "Regroup"]

"""Fielding: per-client moves plus selective global re-clustering."""

from strategies.fielding.method import Fielding as Fielding
from strategies.fielding.method import FieldingSettings as FieldingSettings
from strategies.fielding.method import set_centres as set_centres
from strategies.fielding.reclustering import FieldingState as FieldingState

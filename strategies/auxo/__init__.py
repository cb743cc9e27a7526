"""Auxo: cohorts that split as clients turn out to differ."""

from strategies.auxo.method import Auxo, AuxoSettings, AuxoState

__all__ = ["Auxo", "AuxoSettings", "AuxoState"]

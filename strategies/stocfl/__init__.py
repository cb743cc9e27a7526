"""StoCFL: stochastic clustering, and models of two levels."""

from strategies.stocfl.method import StoCFL, StoCFLSettings, StoCFLState

__all__ = ["StoCFL", "StoCFLSettings", "StoCFLState"]

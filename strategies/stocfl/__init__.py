"""StoCFL: stochastic clustering, and models of two levels."""

from strategies.stocfl.method import StoCFL, StoCFLSettings

__all__ = ["StoCFL", "StoCFLSettings"]

"""StoCFL: clients are clustered as they come to take part, around one global model."""

from strategies.stocfl.method import StoCFL, StoCFLSettings, StoCFLState

__all__ = ["StoCFL", "StoCFLSettings", "StoCFLState"]

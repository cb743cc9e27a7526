"""StoCFL: clients are clustered as they come to take part, around one global model."""

from strategies.stocfl.method import StoCFL as StoCFL
from strategies.stocfl.state import StoCFLSettings as StoCFLSettings
from strategies.stocfl.state import StoCFLState as StoCFLState

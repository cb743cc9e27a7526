"""What every method of clustered federated learning shares.

`config` composes and checks the settings; `communication` brings tasks to clients and
results back; `client` is what surrounds a client on a device; `learning`, `clustering`,
`data` and `models` compute; `runs` keeps what happened, and `analysis` compares it.
docs/architecture.md follows a training task through them.

`run`, `compare` and `load` are the Python interface. It is `simulations.api`, above
this package, and is imported when one of its names is used.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulations.api import Comparison, Run, compare, load, run

__all__ = ["Comparison", "Run", "__version__", "compare", "load", "run"]

# Activations lie on huge pages where the system has them: ordinary ones, mapped anew in
# every pass of a convolution, double the time of a test. torch reads this once, late.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return a name of the Python interface."""
    if name in __all__:
        return getattr(import_module("simulations.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

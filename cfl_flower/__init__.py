"""What every method of clustered federated learning shares.

`config` composes and checks the settings; `communication` brings tasks to clients and
results back; `client` is what surrounds a client on a device; `learning`, `clustering`,
`data` and `models` compute; `runs` keeps what happened, and `analysis` compares it.
docs/architecture.md follows a training task through them.

`run`, `compare` and `load` are the Python interface, `Strategy` and `Model` the bases
of your own. They are above this package, and imported when one of them is used.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cfl_flower import aliases
from cfl_flower.environment.code_version import VERSION

if TYPE_CHECKING:
    from cfl_flower.engine.method import ClusteredStrategy as Strategy
    from cfl_flower.errors import ConfigError
    from cfl_flower.models import ModelSettings as Model
    from simulations.api import Comparison, Run, compare, load, run

__all__ = [
    "Comparison",
    "ConfigError",
    "Model",
    "Run",
    "Strategy",
    "__version__",
    "compare",
    "load",
    "run",
]

ELSEWHERE = {
    "ConfigError": ("cfl_flower.errors", "ConfigError"),
    "Model": ("cfl_flower.models", "ModelSettings"),
    "Strategy": ("cfl_flower.engine.method", "ClusteredStrategy"),
}
"""Module and name of each public name that is not in `simulations.api`."""

# Activations lie on huge pages where the system has them: ordinary ones, mapped anew in
# every pass of a convolution, double the time of a test. torch reads this once, late.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

aliases.install()

__version__ = VERSION


def __getattr__(name: str) -> Any:
    """Return a name of the Python interface."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    aliases.require_own_packages()
    module, known = ELSEWHERE.get(name, ("simulations.api", name))
    return getattr(import_module(module), known)

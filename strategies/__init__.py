"""One paper per file, on the frame of `cfl_flower.engine.method`.

How a file reads its paper, and where it deviates, is in docs/methods. Names of classes
are of strategies for a Flower app of your own (docs/how-to/your-flower-app.md):
`from cfl_flower.strategies import Fielding` in the place of Flower's FedAvg.
"""

from importlib import import_module
from typing import Any

METHODS = {
    "Auxo": "auxo",
    "CFL": "cfl",
    "FedAvg": "fedavg",
    "FedDrift": "feddrift",
    "FeSEM": "fesem",
    "Fielding": "fielding",
    "FlexCFL": "flexcfl",
    "IFCA": "ifca",
    "Oracle": "oracle",
    "Static": "static",
    "StoCFL": "stocfl",
}
"""The modules of the methods that work with any ClientApp."""

__all__ = list(METHODS)


def __getattr__(name: str) -> Any:
    """Return a method as a strategy for a Flower app of one's own."""
    if name not in METHODS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    drop_in = import_module("cfl_flower.dropin.strategy").drop_in
    method = getattr(import_module(f"strategies.{METHODS[name]}"), name)
    globals()[name] = drop_in(name, method)
    return globals()[name]

"""torchvision's datasets, models and transforms; the only module that imports it.

torchvision takes seconds to import, so import this module where it is needed and no
earlier.

Beside a CPU-only torch, torchvision's compiled operators do not load, and its import
fails on the two that it describes to torch while it is being imported, `nms` and
`qnms`. Nothing here detects objects: the two are declared and never called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from torch.library import Library

ARGUMENTS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_libraries: list[Any] = []
"""An operator lives as long as its library."""


def _import_torchvision() -> ModuleType:
    try:
        return import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    # A second import must not find what the first one left behind.
    for name in [name for name in sys.modules if name.startswith("torchvision.")]:
        del sys.modules[name]
    library: Any = Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(name + ARGUMENTS)
    _libraries.append(library)
    return import_module("torchvision")


_torchvision = _import_torchvision()

datasets: Any = _torchvision.datasets
models: Any = _torchvision.models
transforms: Any = _torchvision.transforms

"""Imports of large libraries."""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType


def import_module(name: str) -> ModuleType:
    """Import a module, with Python's search for unreachable objects paused.

    An import keeps what it makes. To look through that again and again took a tenth of
    the time until the first round.
    """
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        # Together they make what is new old, and what is old is seldom searched.
        gc.freeze()
        gc.unfreeze()
        gc.enable()

"""Several datasets as one: clients of different domains, such as digits and clothes."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from cfl_flower.data.reading.files import of_one_type
from cfl_flower.data.reading.pool import Pool
from cfl_flower.errors import ConfigError
from cfl_flower.settings import require, settings


@settings("dataset")
class Hybrid:
    """Datasets of one shape and number of labels; a label means another thing in each.

    StoCFL's Hybrid: with ``partition=hybrid`` half of the clients hold MNIST, and half
    Fashion-MNIST.
    """

    parts: dict[str, Any] = field(default_factory=dict)
    """The datasets, each held by the clients of one domain."""

    def __post_init__(self) -> None:
        # While composed it is empty for a moment; `check` refuses that.
        kinds = {(tuple(part.shape), part.classes) for part in self.parts.values()}
        if len(kinds) > 1:
            fault = f"dataset.parts have the shapes and labels {sorted(kinds)}"
            raise ConfigError(f"{fault}; use datasets that are alike in both")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self._first.shape)

    @property
    def classes(self) -> int:
        """Number of labels, L."""
        return int(self._first.classes)

    def check(self, data_dir: str) -> None:
        """Require at least one part, and the files of every part."""
        known = bool(self.shape and self.classes)
        for name, part in self.parts.items():
            ok = known and getattr(part, "standardise", False) != "clients"
            allowed = "one with shape and classes, and standardise=pooled or false"
            require(ok, f"dataset.parts.{name}", type(part).__name__, allowed)
            part.check(data_dir)

    def require_below(self, data_dir: str) -> None:
        """Require that a device's settings name its own files, in every part."""
        for part in self.parts.values():
            if hasattr(part, "require_below"):
                part.require_below(data_dir)

    def load(self, data_dir: str) -> tuple[Pool, Pool]:
        """Return the samples of all parts, one after the other."""
        loaded = [part.load(data_dir) for part in self.parts.values()]
        train, test = (_joined(pools) for pools in zip(*loaded, strict=True))
        return train, test

    @property
    def _first(self) -> Any:
        if not self.parts:
            raise ConfigError("dataset.parts is empty; name at least one dataset")
        return next(iter(self.parts.values()))


def _joined(pools: tuple[Pool, ...]) -> Pool:
    sizes = [len(pool.labels) for pool in pools]
    return Pool.from_arrays(
        {
            "x": np.concatenate(of_one_type([pool.x.numpy() for pool in pools])),
            "y": np.concatenate([pool.labels for pool in pools]),
            "domain": np.repeat(np.arange(len(pools)), sizes),
        }
    )

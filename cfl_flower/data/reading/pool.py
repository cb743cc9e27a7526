"""Samples in memory, or in memory-mapped files that all workers share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import Tensor

from cfl_flower.errors import refused
from cfl_flower.types import IntArray

Arrays = Mapping[str, NDArray[Any]]
"""``x`` (n, *shape), float32 or pixels in uint8; ``y`` (n,), int64; perhaps ``owner``,
``time``, ``domain`` and ``row``, all (n,), int64."""

PARTS = ("train", "test")

LONGEST = 80
"""Characters of a name that a folder in the cache begins with."""

READ = 2**28
"""Bytes of inputs that are read to tell whether they have changed."""

Parts = Mapping[str, Arrays]
"""The arrays of each of `PARTS`."""


@dataclass(frozen=True)
class Pool:
    """Samples that are allocated to clients; all but ``x`` have the shape (n,)."""

    x: Tensor
    """Shape (n, *shape): float32, or pixels that stay bytes until they are taken."""
    y: Tensor
    labels: IntArray
    """The same labels for numpy."""
    owners: IntArray | None = None
    """Owner of each sample (a writer, a user, a camera), where the dataset knows."""
    times: IntArray | None = None
    """Time of each sample, in the dataset's own unit."""
    domains: IntArray | None = None
    """Dataset of each sample, in a hybrid of several."""
    rows: IntArray | None = None
    """Row of each sample in its table, from 0, where it is of one."""

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Pool:
        """Wrap arrays without a copy."""
        labels = np.asarray(arrays["y"])
        return cls(
            torch.from_numpy(arrays["x"]),
            torch.from_numpy(labels),
            labels,
            arrays.get("owner"),
            arrays.get("time"),
            arrays.get("domain"),
            arrays.get("row"),
        )

    def to(self, device: str) -> Pool:
        """Return the pool with its tensors on a device."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def digest(self) -> str:
        """Return 16 bytes, in hexadecimal, that name the samples.

        Of inputs larger than `READ` bytes, some at equal distances are read.
        """
        x = self.x.numpy()
        state = blake2b(f"{x.dtype} {x.shape}".encode(), digest_size=16)
        some = x[:: 1 + x.nbytes // READ]
        for of in (some, self.labels, self.owners, self.times, self.domains):
            state.update(b"" if of is None else np.ascontiguousarray(of).data)
        return state.hexdigest()

    def labels_at(self, indices: IntArray) -> IntArray:
        """Return labels; indices beyond the last sample go on with the first."""
        return self.labels.take(indices, mode="wrap")

    def inputs(self, rows: Tensor | slice) -> Tensor:
        """Return samples as networks take them: float32, pixels in [0, 1]."""
        x = self.x[rows] if isinstance(rows, slice) else self.x.index_select(0, rows)
        return x.float().div_(255) if x.dtype == torch.uint8 else x


class Dataset(Protocol):
    """Settings of a dataset that know its shape without loading it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""

    @property
    def classes(self) -> int:
        """Number of labels, L."""

    def check(self, data_dir: str) -> None:
        """Raise `ConfigError` if the files are not there, naming those expected."""

    def load(self, data_dir: str) -> tuple[Pool, Pool]:
        """Return the samples for training and for testing, or raise `ConfigError`."""


def said_of_one(pools: tuple[Pool, Pool], name: str) -> str:
    """Return which samples lack an owner or a time, as ``name`` says, if others do not.

    In brackets, for an error; nothing where all have none.
    """
    lacking = [
        part
        for part, pool in zip(PARTS, pools, strict=True)
        if getattr(pool, f"{name}s") is None
    ]
    if len(lacking) != 1:
        return ""
    return f" (those for {lacking[0]}ing have no {name}: {name}_{lacking[0]} in a .npz)"


def pools(parts: Parts) -> tuple[Pool, Pool]:
    """Return the samples for training and those for testing."""
    return Pool.from_arrays(parts["train"]), Pool.from_arrays(parts["test"])


def divide(arrays: Arrays, test: NDArray[np.bool_]) -> Parts:
    """Divide samples into those for training and, where ``test`` says so, testing."""
    return {
        part: {key: array[test == (part == "test")] for key, array in arrays.items()}
        for part in PARTS
    }


def cache_dir() -> Path:
    """Return the user's own folder for what is made from a dataset's files."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "cfl-flower"


@cache
def _recipes() -> bytes:
    """Name the code of `cfl_flower.data`: other code may make other arrays."""
    state = blake2b(digest_size=8)
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        state.update(path.read_bytes())
    return state.digest()


def load_pools(dataset: Dataset, data_dir: str) -> tuple[Pool, Pool]:
    """Return what a dataset has loaded, or raise `ConfigError` if it does not fit.

    Inputs of other floating types become float32.
    """
    found = dataset.load(data_dir)
    name = f"dataset: what {type(dataset).__name__}.load returns"
    last = dataset.classes - 1
    remedy = (
        f"return two Pools, with finite inputs {dataset.shape}, labels from 0 to "
        f"{last} and an owner, time, domain and row for each sample, or for none"
    )
    with refused(name, remedy):
        train, test = found
        return _fitting(train, dataset), _fitting(test, dataset)


def _fitting(pool: Pool, dataset: Dataset) -> Pool:
    """Return a pool with inputs as networks take them; ValueError if it cannot be."""
    shape = tuple(pool.x.shape)
    count = len(pool.labels)
    # It refuses what are no whole numbers, and those below 0.
    largest = len(np.bincount(pool.labels)) - 1
    if shape != (count, *dataset.shape) or largest >= dataset.classes:
        raise ValueError(f"inputs {shape} and labels up to {largest}")
    if not np.array_equal(pool.y.cpu().numpy(), pool.labels):
        raise ValueError("y is not labels")
    for name in ("owners", "times", "domains", "rows"):
        each = getattr(pool, name)
        if each is not None and len(each) != count:
            raise ValueError(f"{len(each)} {name} for {count} samples")
    # Sums of a table's inputs are in double precision, and what it lacks is filled in
    # when all clients' sums are known.
    if not pool.x.is_floating_point() or getattr(dataset, "lacks_sums", False):
        return pool
    x = pool.x.float()
    # Both are NaN if any number is; no copy of the inputs is made.
    if count and not torch.stack(x.aminmax()).isfinite().all():
        raise ValueError("inputs that are no finite float32")
    return pool if x is pool.x else replace(pool, x=x)


def cached_arrays(name: str, build: Callable[[], Parts]) -> Parts:
    """Return arrays as memory maps, made once.

    ``name`` says what the arrays depend on; the name of their folder in `cache_dir`
    begins with it. A change of the code makes them out of date. ``build`` makes them;
    it is called once, whatever number of workers asks.
    """
    state = blake2b(_recipes(), digest_size=8)
    state.update(name.encode())
    plain = re.sub(r"[^\w.-]+", "_", name)[:LONGEST]
    folder = cache_dir() / "arrays" / f"{plain}-{state.hexdigest()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            place = TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True)
            with place as temporary:
                for part, arrays in build().items():
                    for key, array in arrays.items():
                        np.save(Path(temporary, f"{key}.{part}.npy"), array)
                # A folder is there with all its files, or not at all.
                Path(temporary).rename(folder)
    # Copy on write: torch wants arrays that could be written to; nobody does.
    return {
        part: {
            path.name.partition(".")[0]: np.load(path, mmap_mode="c")
            for path in folder.glob(f"*.{part}.npy")
        }
        for part in PARTS
    }

"""The image datasets that torchvision reads and, if asked, downloads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from cfl_flower.data.reading.files import (
    FileDataset,
    TestFraction,
    channels_first,
    held_out,
    may_fetch,
    unpack_gz,
)
from cfl_flower.data.reading.pool import PARTS, Arrays, Parts, Pool, cache_dir, divide
from cfl_flower.data.reading.scaling import (
    Scaling,
    check_scaling,
    normalised,
    standardised,
)
from cfl_flower.errors import intact
from cfl_flower.settings import require, settings


@settings("dataset")
class TorchvisionImages(FileDataset):
    """A dataset with a loader in torchvision; pixels stay bytes, memory-mapped."""

    download: bool = False
    """Let torchvision fetch the files into data_dir if they are not there. A device
    fetches nothing."""
    test_fraction: TestFraction | None = None
    """Pool the official training and test sets, and hold out this share of each label
    for testing, as FedProx's recipes do. None keeps the official sets."""
    standardise: bool = False
    """Take (x - mean) / (deviation + 0.001) of every pixel, from 0 to 255, over both
    sets, instead of x / 255; so do FedProx's recipes."""
    colour: bool = False
    """Show grey images in three equal channels, for colours that a drift gives them."""
    normalise: Scaling | None = None
    """The mean and deviation in (x / 255 - mean) / deviation, which then is taken
    instead: two numbers for all pixels, or two lists with one for each channel."""
    remedy: ClassVar[str] = "put the files there or add dataset.download=true"
    folder: ClassVar[str]
    stems: ClassVar[tuple[str, ...]]
    size: ClassVar[tuple[int, int, int]]
    classes: ClassVar[int] = 10

    def __post_init__(self) -> None:
        ok = not self.colour or self.size[0] == 1
        require(ok, "dataset.colour", "true", "false: images are in colour already")
        check_scaling(self.normalise, self.standardise, self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of one image: channels, height, width."""
        channels, *sides = self.size
        return (3 if self.colour else channels, *sides)

    def files(self) -> tuple[str, ...]:
        """Return torchvision's files, unpacked or as .gz."""
        return tuple(f"{self.folder}/{stem}*" for stem in self.stems)

    def check(self, data_dir: str) -> None:
        """Require the files in ``data_dir``, unless they may be downloaded."""
        if not may_fetch(self.download):
            super().check(data_dir)

    def load(self, data_dir: str) -> tuple[Pool, Pool]:
        """Return the official training and test sets."""
        if may_fetch(self.download):
            folder = Path(data_dir, self.folder)
            remedy = f"check the network, or put its files into {folder}"
            with intact(self.name, remedy, "fetched"):
                self._open(data_dir, train=True, download=True)
        # The arrays are the same, fetched or not.
        return FileDataset.load(replace(self, download=False), data_dir)

    def arrays(self, data_dir: str) -> Parts:
        """Read what torchvision reads."""
        read: dict[str, Arrays] = {}
        where = f"{self.name} in data_dir={data_dir}"
        with intact(where), self._unpacked(data_dir) as root:
            for part in PARTS:
                data = self._open(root, train=part == "train", download=False)
                x = channels_first(np.asarray(data.data))
                x = np.repeat(x, self.shape[0] // x.shape[1], axis=1)
                read[part] = {"x": x, "y": np.asarray(data.targets, np.int64)}
        parts: Parts = read
        if self.test_fraction is not None:
            both = {k: np.concatenate([it[k] for it in parts.values()]) for k in "xy"}
            parts = divide(both, held_out(both["y"], self.test_fraction))
        if self.normalise is not None:
            parts = normalised(parts, self.normalise)
        return standardised(parts) if self.standardise else parts

    @contextmanager
    def _unpacked(self, data_dir: str) -> Iterator[str]:
        """Give a root with unpacked files: data_dir, or one in the user's cache."""
        source = Path(data_dir, self.folder)
        if all((source / stem).is_file() for stem in self.stems):
            yield data_dir
            return
        with TemporaryDirectory(dir=cache_dir()) as root:
            target = Path(root, self.folder)
            target.mkdir(parents=True)
            for stem in self.stems:
                (target / stem).write_bytes(unpack_gz(source / f"{stem}.gz"))
            yield root

    def _open(self, root: str, train: bool, download: bool) -> Any:
        # torchvision takes seconds to import.
        from cfl_flower.data.reading.vision import datasets  # noqa: PLC0415

        return getattr(datasets, self.name)(root, train=train, download=download)


IDX = tuple(
    f"{part}-{kind}-ubyte"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)
"""The four files of MNIST's format."""


@settings("dataset")
class Mnist(TorchvisionImages):
    """MNIST: 70,000 handwritten digits, 28x28, grey."""

    name: ClassVar[str] = "MNIST"
    folder: ClassVar[str] = "MNIST/raw"
    stems: ClassVar[tuple[str, ...]] = IDX
    size: ClassVar[tuple[int, int, int]] = (1, 28, 28)


@settings("dataset")
class FashionMnist(Mnist):
    """Fashion-MNIST: 70,000 pieces of clothing, 28x28, grey."""

    name: ClassVar[str] = "FashionMNIST"
    folder: ClassVar[str] = "FashionMNIST/raw"


@settings("dataset")
class Cifar10(TorchvisionImages):
    """CIFAR-10: 60,000 photographs, 32x32, colour."""

    name: ClassVar[str] = "CIFAR10"
    folder: ClassVar[str] = "cifar-10-batches-py"
    stems: ClassVar[tuple[str, ...]] = (
        *(f"data_batch_{number}" for number in range(1, 6)),
        "test_batch",
        "batches.meta",
    )
    size: ClassVar[tuple[int, int, int]] = (3, 32, 32)


@settings("dataset")
class Cifar100(Cifar10):
    """CIFAR-100: 60,000 photographs of 100 classes, 32x32, colour."""

    name: ClassVar[str] = "CIFAR100"
    folder: ClassVar[str] = "cifar-100-python"
    stems: ClassVar[tuple[str, ...]] = ("train", "test", "meta")
    classes: ClassVar[int] = 100

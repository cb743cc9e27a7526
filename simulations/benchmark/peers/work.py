"""What all libraries do: data, initial models, and the score of what they train.

All of it is ours: `Work.overrides` is a run of this project, and the others get the
samples of its clients and its initial models.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cfl_flower.config.compose import RunConfig, compose_config
from cfl_flower.config.overrides import split
from cfl_flower.data.reading.pool import cache_dir
from cfl_flower.learning.training import predictions, sample_losses
from cfl_flower.models import FlatModel, initial_vector
from cfl_flower.seeding import generator
from cfl_flower.server_app import open_stream
from cfl_flower.types import Vector

COMMON = """
    drift=none clients=1000 participants=20 partition.samples=40
    partition.test_samples=10 strategy.local.epochs=15 strategy.local.batch_size=10
    strategy.local.learning_rate=0.05 system.evaluate_every=999
    system.checkpoint_every=999
"""
"""60 steps for each of 20 of 1,000 clients, whose 40 samples 15 passes go over."""

GROUPS = "partition=shifted partition.shifts=[0,2,4,6,8]"
"""Five groups of clients, who call the same images by other labels."""

PATTERNS = 3
"""Of each class of the synthetic images."""


@dataclass(frozen=True)
class Work:
    """One row of the table: a method on a network."""

    name: str
    overrides: str
    """Of our own run, without its data."""
    rounds: int
    warm_up: int = 3
    """Rounds at the start that are not measured: others compile, workers start."""

    def config(self, data: Data) -> RunConfig:
        """Return our own run."""
        return compose_config(split(f"{self.line(data)} engine=inprocess"))

    def line(self, data: Data) -> str:
        """Return the overrides of our own run, without its engine."""
        return f"{self.overrides} {data.overrides} rounds={self.rounds}"


WORKS = (
    Work(
        "FedAvg, mclr 784x10", f"{COMMON} partition=iid strategy=fedavg model=mclr", 13
    ),
    Work(
        "FedAvg, MLP 784-200-10",
        f"{COMMON} partition=iid strategy=fedavg model=mlp model.hidden=200",
        13,
    ),
    Work(
        "FedAvg, FedCCFA's CNN",
        f"{COMMON} partition=iid strategy=fedavg model=fedccfa_cnn",
        8,
    ),
    Work(
        "IFCA, 5 MLPs 784-200-10",
        f"{COMMON} {GROUPS} strategy=ifca clusters=5 model=mlp model.hidden=200",
        13,
    ),
)


class Data(NamedTuple):
    """What the images are, in words and as overrides."""

    name: str
    overrides: str


def find_data() -> Data:
    """Return MNIST if CFL_DATA_DIR has it, else a synthetic set, made once."""
    folder = os.environ.get("CFL_DATA_DIR")
    if folder and Path(folder, "MNIST").is_dir():
        return Data("MNIST", "dataset=mnist")
    path = cache_dir() / "peers" / "synthetic-28x28.npz"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(draft, allow_pickle=False, **draw_images(60_000, 10_000))
        draft.replace(path)
    return Data("a synthetic set of 28x28", f"dataset=npz dataset.file='{path}'")


def draw_images(train: int, test: int) -> dict[str, NDArray[Any]]:
    """Draw images of ten classes, each time the same.

    A class has three coarse patterns; an image is one of them, moved by up to two
    pixels, with another class's shining through, and noise. A linear model tells some
    four of five images right.
    """
    rng = np.random.default_rng(0)
    coarse = rng.random((10, PATTERNS, 7, 7))
    patterns = np.kron(coarse, np.ones((4, 4)))
    found: dict[str, NDArray[Any]] = {}
    for part, count in (("train", train), ("test", test)):
        labels = rng.integers(10, size=count)
        images = 0.6 * _moved(patterns, labels, rng)
        images += 0.4 * _moved(patterns, rng.integers(10, size=count), rng)
        images += rng.normal(0, 0.1, images.shape)
        found[f"x_{part}"] = (255 * images.clip(0, 1)).astype(np.uint8)
        found[f"y_{part}"] = labels
    return found


def _moved(
    patterns: NDArray[Any], labels: NDArray[Any], rng: np.random.Generator
) -> NDArray[Any]:
    """Return a pattern of each label, moved at random, shape (n, 28, 28)."""
    images = patterns[labels, rng.integers(PATTERNS, size=len(labels))]
    down, right = rng.integers(-2, 3, size=(2, len(labels)))
    rows = np.arange(28)[:, None]
    columns = np.arange(28)[None, :]
    which = np.arange(len(labels))[:, None, None]
    moved: NDArray[Any] = images[
        which,
        (rows[None] + down[:, None, None]) % 28,
        (columns[None] + right[:, None, None]) % 28,
    ]
    return moved


class Prepared:
    """The samples of all clients and the initial models of a work."""

    def __init__(self, config: RunConfig) -> None:
        stream = open_stream(config)
        views = [stream.view(client, 1) for client in range(config.clients)]
        samples = [v.train() for v in views]
        tests = [v.test() for v in views]
        self.x, self.y, self.x_test, self.y_test = (
            torch.stack([pair[i] for pair in pairs])
            for pairs in (samples, tests)
            for i in (0, 1)
        )
        shape = config.dataset.shape
        classes = config.dataset.classes
        self.model = FlatModel(config.model.build(shape, classes))
        seeds = [config.seed]
        if hasattr(config.strategy, "clusters"):
            # As the methods draw them whose clients choose.
            draw = generator(config.seed, "cluster-models")
            seeds = draw.integers(2**31, size=config.strategy.clusters).tolist()
        self.start = [initial_vector(config.model, shape, classes, s) for s in seeds]

    @property
    def shapes(self) -> list[list[int]]:
        """The shapes of the network's parameters."""
        return [list(each.shape) for each in self.model.module.parameters()]

    def write(self, folder: Path) -> None:
        """Write what the other libraries read."""
        for name, array in (("x", self.x), ("y", self.y), ("start", self.start)):
            np.save(folder / name, np.asarray(array))

    def accuracy(self, models: list[Vector]) -> float:
        """Return the share of all clients' test samples that are told right.

        Each client takes the model with the smallest loss on its training samples.
        """
        count, size = self.y.shape
        losses = []
        right = []
        for model in models:
            self.model.load(model)
            each = sample_losses(self.model, self.x.flatten(0, 1), self.y.flatten())
            losses.append(each.view(count, size).mean(1))
            found = predictions(self.model, self.x_test.flatten(0, 1))
            hits = found.view_as(self.y_test) == self.y_test
            right.append(hits.float().mean(1))
        best = torch.stack(losses).argmin(0)
        return float(torch.stack(right).gather(0, best[None]).mean())

"""What the data of many virtual clients cost."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.drift import Relabel
from cfl_flower.data.worlds.partition import Dirichlet
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.learning.training import LocalTraining, train
from cfl_flower.models import FedCcfaCnn, FlatModel
from cfl_flower.seeding import generator
from simulations.benchmark import measure as bench

CLIENTS = 5000
ROUNDS = 20


def rows() -> Iterator[bench.Row]:
    """Measure the views of 5,000 clients on a set of CIFAR-10's size, in a process."""
    with tempfile.TemporaryDirectory() as folder:
        for name, count in (("train", 50_000), ("test", 10_000)):
            shape = (count, 3, 32, 32)
            pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
            np.save(Path(folder, name), pixels)
        memory, share = bench.in_process(_measure_views, folder)
    name = "5,000 clients on a set of CIFAR-10's size: memory of a worker"
    yield bench.within(name, memory, 300, "MB")
    name = "making a client's view, against one local epoch of its CNN"
    yield bench.within(name, 100 * share, 5, "%")


@dataclass(frozen=True)
class _CifarSized:
    """Random pixels in memory-mapped files, labelled in turn."""

    folder: str
    shape: tuple[int, ...] = (3, 32, 32)
    classes: int = 10

    def check(self, data_dir: str) -> None:
        """Do nothing."""

    def load(self, data_dir: str) -> tuple[Pool, Pool]:
        """Return the training and the test samples."""
        del data_dir
        return self._read("train"), self._read("test")

    def _read(self, name: str) -> Pool:
        pixels = np.load(f"{self.folder}/{name}.npy", mmap_mode="c")
        return Pool.from_arrays({"x": pixels, "y": np.arange(len(pixels)) % 10})


def _measure_views(folder: str) -> tuple[float, float]:
    """Return the memory added in MB, and the time of views per time of epochs."""
    torch.set_num_threads(1)
    local = LocalTraining(epochs=1, learning_rate=0.01)
    model = FlatModel(FedCcfaCnn(blocks=3).build((3, 32, 32), 10))
    before = bench.resident_bytes()
    drift = Relabel([10], fraction=0.5, random_swaps=1)
    stream = Stream(_CifarSized(folder), Dirichlet(), drift, CLIENTS, 0, ROUNDS)
    for client in range(CLIENTS):
        for server_round in (1, ROUNDS):
            stream.view(client, server_round).train()
            stream.view(client, server_round).test()
    memory = (bench.resident_bytes() - before) / 1e6
    epochs = 0.0
    views = 0.0
    for client in range(0, CLIENTS, 10):
        watch = bench.Stopwatch()
        x, y = stream.view(client, ROUNDS).train()
        views += watch.lap().wall
        train(model, x, y, local, generator(0, "batches", 1, client))
        epochs += watch.lap().wall
    return memory, views / epochs

"""What the data of many virtual clients cost."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from cfl_flower.data.drift import Relabel
from cfl_flower.data.partition import Dirichlet
from cfl_flower.data.pool import Pool
from cfl_flower.data.stream import Stream
from cfl_flower.learning.training import LocalTraining, train
from cfl_flower.models import FedCcfaCnn, FlatModel
from cfl_flower.seeding import generator
from simulations.benchmark.measure import Row, resident_pages


def rows() -> Iterator[Row]:
    """Measure the views of 5,000 clients on a set of CIFAR-10's size, in a process."""
    with tempfile.TemporaryDirectory() as folder:
        for name, count in (("x_train", 50_000), ("x_test", 10_000)):
            pixels = np.random.default_rng(0).integers(0, 256, (count, 3072), np.uint8)
            np.save(Path(folder, name), pixels.reshape(count, 3, 32, 32))
        with ProcessPoolExecutor(1, get_context("spawn")) as worker:
            memory, share = worker.submit(_measure_views, folder).result()
    name = "5,000 clients on a set of CIFAR-10's size: memory of a worker"
    yield Row(name, f"{memory:.0f} MB", "300 MB", memory <= 300)
    name = "making a client's view, against one local epoch of its CNN"
    yield Row(name, f"{share:.1%}", "5%", share <= 0.05)


@dataclass(frozen=True)
class _CifarSized:
    """Random pixels in memory-mapped files."""

    folder: str
    shape: tuple[int, ...] = (3, 32, 32)
    classes: int = 10

    def check(self, data_dir: str) -> None:
        """Do nothing."""

    def load(self, data_dir: str) -> tuple[Pool, Pool]:
        """Return the files' pixels, labelled in turn."""
        del data_dir
        x = [
            np.load(f"{self.folder}/x_{p}.npy", mmap_mode="c")
            for p in ("train", "test")
        ]
        train, test = (
            Pool.from_arrays({"x": pixels, "y": np.arange(len(pixels)) % 10})
            for pixels in x
        )
        return train, test


def _measure_views(folder: str) -> tuple[float, float]:
    """Return the memory added in MB, and the time of views per time of epochs."""
    torch.set_num_threads(1)
    local, rounds, clients = LocalTraining(epochs=1, learning_rate=0.01), 20, 5000
    model = FlatModel(FedCcfaCnn(blocks=3).build((3, 32, 32), 10))
    before = resident_pages()
    drift = Relabel([10], fraction=0.5, random_swaps=1)
    stream = Stream(_CifarSized(folder), Dirichlet(), drift, clients, 0, rounds)
    for client in range(clients):
        for round in (1, rounds):
            stream.view(client, round).train()
            stream.view(client, round).test()
    memory = (resident_pages() - before) * resource.getpagesize() / 1e6
    epochs = views = 0.0
    for client in range(0, clients, 10):
        start = time.perf_counter()
        x, y = stream.view(client, rounds).train()
        views += time.perf_counter() - start
        start = time.perf_counter()
        train(model, x, y, local, generator(0, "batches", 1, client))
        epochs += time.perf_counter() - start
    return memory, views / epochs

"""What the frame costs, as ratios to a plain loop measured in the same run.

    python -m simulations.benchmark            # everything, about five minutes
    python -m simulations.benchmark clustering # one part

The reference is a single-process loop that does the same local training and the same
tests with the same code, and nothing else: no Flower, no records, no files.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median
from typing import cast

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.decomposition import TruncatedSVD
from sklearn.metrics.pairwise import cosine_similarity
from threadpoolctl import threadpool_limits
from torch import nn
from torch.nn.functional import cross_entropy

from cfl_flower.aggregation import mean_model
from cfl_flower.clustering import KMeansScan, choose_clusters, cluster_centres
from cfl_flower.config import RunConfig, compose_config
from cfl_flower.data.drift import Relabel
from cfl_flower.data.partition import Dirichlet
from cfl_flower.data.pool import Pool
from cfl_flower.data.public import Samples
from cfl_flower.data.stream import Stream
from cfl_flower.directions import cosine_matrix, decomposed_cosines, sketch
from cfl_flower.models import CcflCnn, FedCcfaCnn, FlatModel, Network, initial_vector
from cfl_flower.results import read_lines
from cfl_flower.seeding import generator
from cfl_flower.training import LocalTraining, evaluate, train
from cfl_flower.types import FloatArray, Vector
from cfl_flower.validation import Validation
from simulations.run import run
from strategies.fedccfa import class_distances, cluster_classes, cluster_means
from strategies.fielding import move_drifted, recompute_centres

WARM_UP = 3
"""Rounds that are not measured: workers import torch and load data."""


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, and what is asked of it."""

    name: str
    figure: str
    limit: str
    holds: bool


ROUND = [
    "strategy=fedavg",
    "drift=none",
    "model=mclr",
    "clients=1000",
    "participants=100",
    "partition.samples=40",
    "partition.test_samples=13",
    "strategy.local.epochs=5",
    "strategy.local.batch_size=10",
    "rounds=23",
]
"""1,000 virtual clients with 40 samples each, drawn with replacement from digits."""


def plain_rounds(config: RunConfig) -> Iterator[float]:
    """Yield the seconds of each round of a plain loop of the same FedAvg."""
    torch.set_num_threads(1)
    dataset, seed = config.dataset, config.seed
    stream = Stream(
        dataset, config.partition, config.drift, config.clients, seed, config.rounds
    )
    model = FlatModel(config.model.build(dataset.shape, dataset.classes))
    weights = initial_vector(config.model, dataset.shape, dataset.classes, seed)
    for round in range(1, config.rounds + 1):
        start = time.perf_counter()
        rng = generator(seed, "selection", round)
        results, counts = [], []
        for client in rng.choice(config.clients, config.participants, replace=False):
            x, y = stream.view(int(client), round).train()
            batches = generator(seed, "batches", round, int(client))
            train(model.load(weights), x, y, config.strategy.local, batches)
            results.append(model.to_vector())
            counts.append(float(len(y)))
        weights = mean_model(results, counts)
        for client in range(config.clients):
            evaluate(model.load(weights), *stream.view(client, round).test())
        yield time.perf_counter() - start


def measured_rounds(overrides: list[str]) -> list[float]:
    """Return the seconds of each round of a real run."""
    with tempfile.TemporaryDirectory() as folder:
        output = f"{folder}/run"
        with redirect_stdout(io.StringIO()):
            run(compose_config([*overrides, f"output_dir={output}"]))
        return [row["seconds"] for row in read_lines(Path(output) / "rounds.jsonl")]


def rounds_rows() -> Iterator[Row]:
    """Compare a steady round of each engine with the plain loop before and after."""
    references = [_plain_round()]
    for name, options, limit in (
        ("engine=inprocess", ["engine=inprocess"], 1.3),
        ("Ray, workers=1", ["workers=1"], 1.5),
        ("Ray, workers=2", ["workers=2"], 0.9),
    ):
        seconds = median(measured_rounds([*ROUND, *options])[WARM_UP:])
        references.append(_plain_round())
        # A shared machine is not equally fast all the time.
        ratio = 2 * seconds / (references[-2] + references[-1])
        figure = f"{ratio:.2f} x  ({seconds:.3f} s)"
        yield Row(f"{name}, a round", figure, f"{limit} x", ratio <= limit)
    figure = ", ".join(f"{reference:.3f}" for reference in references)
    yield Row("plain loop, a round, before and after each", f"{figure} s", "-", True)


def _plain_round() -> float:
    return median(list(plain_rounds(compose_config(ROUND)))[WARM_UP:])


def long_rows() -> Iterator[Row]:
    """Time 300 rounds of a small model in process."""
    overrides = [
        "strategy=fedavg",
        "engine=inprocess",
        "drift=none",
        "dataset.size=28",
        "clients=1000",
        "participants=20",
        "partition.samples=40",
        "partition.test_samples=13",
        "strategy.local.steps=60",
        "system.evaluate_every=10",
        "system.checkpoint_every=10",
        "rounds=300",
    ]
    start = time.perf_counter()
    measured_rounds(overrides)
    seconds = time.perf_counter() - start
    yield Row(
        "in process: 300 rounds x 20 clients x 60 steps, 7,850 parameters",
        f"{seconds:.1f} s",
        "60 s",
        seconds <= 60,
    )


def memory_rows() -> Iterator[Row]:
    """Take the peak memory of the server process of a large fleet."""
    overrides = [
        "strategy=fielding",
        "drift=none",
        "dataset.size=28",
        "model=mlp",
        "model.hidden=128",
        "clients=5000",
        "participants=500",
        "partition.samples=40",
        "partition.test_samples=13",
        "strategy.local.epochs=1",
        "workers=2",
        "rounds=3",
    ]
    with tempfile.TemporaryDirectory() as folder:
        with redirect_stdout(io.StringIO()):
            run(compose_config([*overrides, f"output_dir={folder}/run"]))
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
    peak = summary["peak_rss_mb"]
    yield Row(
        "server, 5,000 clients, 500 participants, 101,770 parameters: peak memory",
        f"{peak / 1000:.2f} GB",
        "1.5 GB",
        peak <= 1500,
    )


def data_rows() -> Iterator[Row]:
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
    before = _resident_pages()
    drift = Relabel([10], fraction=0.5, random_swaps=1)
    stream = Stream(_CifarSized(folder), Dirichlet(), drift, clients, 0, rounds)
    for client in range(clients):
        for round in (1, rounds):
            stream.view(client, round).train()
            stream.view(client, round).test()
    memory = (_resident_pages() - before) * resource.getpagesize() / 1e6
    epochs = views = 0.0
    for client in range(0, clients, 10):
        start = time.perf_counter()
        x, y = stream.view(client, rounds).train()
        views += time.perf_counter() - start
        start = time.perf_counter()
        train(model, x, y, local, generator(0, "batches", 1, client))
        epochs += time.perf_counter() - start
    return memory, views / epochs


def _resident_pages() -> int:
    # The peak that `resource` gives would be the parent's: it survives a spawn.
    return int(Path("/proc/self/statm").read_text().split()[1])


def clustering_rows() -> Iterator[Row]:
    """Time Fielding's server steps for many clients x 100 labels on one core."""
    rng = np.random.default_rng(0)
    bases = rng.dirichlet(np.full(100, 0.1), 12)
    for count, drifted, limits in (
        (5078, 5078, (0.05, 3.0)),
        (100_000, 1000, (0.2, 30)),
    ):
        clusters = np.arange(count) % 12
        points = np.stack([rng.dirichlet(60 * bases[k] + 0.02) for k in clusters])
        points = points.astype(np.float32)
        centres = cluster_centres(points, clusters, 12)
        rows = np.arange(drifted)

        def move() -> None:
            moved = move_drifted(rows, points, clusters, centres, "l1")  # noqa: B023
            recompute_centres(points, moved, centres)  # noqa: B023

        def recluster() -> None:
            found = choose_clusters(
                points,  # noqa: B023
                "l1",
                KMeansScan(),
                np.random.default_rng(1),
            )
            assert found.max() == 11

        with threadpool_limits(limits=1):
            for name, step, limit in (
                (
                    f"moving {drifted:,} of {count:,} clients x 100 labels",
                    move,
                    limits[0],
                ),
                (f"re-clustering {count:,} x 100, K = 2..20", recluster, limits[1]),
            ):
                seconds = median(_times(step, 3))
                yield Row(name, f"{seconds:.3f} s", f"{limit} s", seconds <= limit)


def directions_rows() -> Iterator[Row]:
    """Time FlexCFL's group cold start, against the randomised SVD of its code."""
    for count, length, limit in ((1000, 101_770, 1.5), (100, 11_200_000, 4.0)):
        with ProcessPoolExecutor(1, get_context("spawn")) as worker:
            job = worker.submit(_measure_directions, count, length)
            seconds, memory = job.result()
        what = f"EDC of {count:,} updates x {length:,} parameters"
        yield Row(
            f"{what}, one thread",
            f"{seconds:.2f} s",
            f"{limit} s",
            seconds <= limit,
        )
        if count * length > 10**9:
            figure = f"{memory:.2f} x"
            yield Row(f"{what}, memory / updates", figure, "1.2 x", memory <= 1.2)
    updates = _random_updates(60, 101_770)
    exact = cosine_matrix(updates)
    for dimension in (256, 1024, 4096):
        sketches = [sketch(update, dimension, 0) for update in updates]
        error = float(np.sqrt(np.square(cosine_matrix(sketches) - exact).mean()))
        what = f"sketch of {dimension:,} for 101,770: mean error of a cosine"
        bound = np.sqrt(2 / dimension)
        yield Row(what, f"{error:.3f}", f"{bound:.3f}", error <= bound)
    for count, length in ((1000, 650), (100, 610), (1000, 7850)):
        ratio, seconds = _compare_directions(count, length)
        what = f"EDC of {count:,} x {length:,}, against a randomised SVD"
        yield Row(what, f"{ratio:.2f} x  ({seconds:.3f} s)", "1 x", ratio <= 1)


STOCFL = [
    "strategy=stocfl",
    "strategy.sketch=1024",
    "drift=none",
    "dataset.size=28",
    "model=mlp",
    "model.hidden=2048",
    "clients=4800",
    "participants=480",
    "partition.samples=50",
    "partition.test_samples=8",
    "strategy.local.epochs=5",
    "strategy.local.batch_size=50",
    "system.evaluate_every=99",
    "system.checkpoint_every=99",
    "workers=2",
    "rounds=3",
]
"""StoCFL's own largest setting, on digits: 1,628,170 parameters."""


def stocfl_rows() -> Iterator[Row]:
    """Take memory and time of the server of StoCFL's largest setting, on Ray."""
    before = _local_work()
    with tempfile.TemporaryDirectory() as folder:
        with redirect_stdout(io.StringIO()):
            run(compose_config([*STOCFL, f"output_dir={folder}/run"]))
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
        rounds = read_lines(Path(folder, "run", "rounds.jsonl"))
    work = (before + _local_work()) / 2
    peak, name = summary["peak_rss_mb"] / 1000, "StoCFL, 4,800 clients, 480 in a round"
    yield Row(f"{name}: memory of the server", f"{peak:.2f} GB", "4 GB", peak <= 4)
    # The first round starts the workers, the last one tests.
    seconds = median(row["seconds"] for row in rounds[1:-1])
    ratio = seconds / (480 * work / 2)
    figure = f"{ratio:.2f} x  ({seconds:.1f} s)"
    what = f"{name}: against its local work on 2 workers"
    yield Row(what, figure, "1.3 x", ratio <= 1.3)
    shared = [str(row["found"]) for row in rounds]
    yield Row(f"{name}: clusters found", ", ".join(shared), "-", True)


def _local_work() -> float:
    """Return the seconds in which a client of StoCFL trains both models.

    While another one does, as on two workers: they share caches and memory.
    """
    with ProcessPoolExecutor(2, get_context("spawn")) as workers:
        jobs = [workers.submit(_measure_local_work) for _ in range(2)]
        return mean(job.result() for job in jobs)


def _measure_local_work() -> float:
    config = compose_config(STOCFL)
    torch.set_num_threads(1)
    dataset, local = config.dataset, config.strategy.local
    model = FlatModel(config.model.build(dataset.shape, dataset.classes))
    samples = torch.rand(50, *dataset.shape), torch.arange(50) % dataset.classes
    start = initial_vector(config.model, dataset.shape, dataset.classes, 0)
    anchor = torch.from_numpy(start.copy())

    def both() -> None:
        rng = generator(0, "batches")
        train(model.load(start), *samples, replace(local, mu=0.05), rng, anchor=anchor)
        model.to_vector()
        train(model.load(start), *samples, local, rng)
        model.to_vector()

    return median(_times(both, 60))


def _random_updates(count: int, length: int) -> list[Vector]:
    """Return updates around five directions."""
    rng = np.random.default_rng(0)
    bases = rng.standard_normal((5, length), np.float32)
    return [
        bases[i % 5] + rng.standard_normal(length, np.float32) for i in range(count)
    ]


def _measure_directions(count: int, length: int) -> tuple[float, float]:
    """Return the seconds of EDC, and the peak memory in multiples of the updates'."""
    before = _resident_pages() * resource.getpagesize()
    updates = _random_updates(count, length)
    start = time.perf_counter()
    decomposed_cosines(updates, 5)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return seconds, peak / (count * length * 4)


def _compare_directions(count: int, length: int) -> tuple[float, float]:
    """Return the time of EDC per time of a randomised SVD, and its seconds."""
    updates = _random_updates(count, length)

    def by_svd() -> None:
        matrix = np.stack(updates)
        axes = TruncatedSVD(5, random_state=0).fit_transform(matrix.T)
        cosine_similarity(matrix, axes.T)

    with threadpool_limits(limits=1):
        reference = median(_times(by_svd, 5))
        seconds = median(_times(lambda: decomposed_cosines(updates, 5), 5))
    return seconds / reference, seconds


def fedccfa_rows() -> Iterator[Row]:
    """Time FedCCFA's classifier collaboration on one core, with planted concepts."""
    for clients, classes, width, limit in ((20, 10, 128, 0.03), (500, 100, 512, 12.0)):
        rng = np.random.default_rng(0)
        shape = (clients, classes, width + 1)
        bases = rng.standard_normal((4, classes, width + 1))
        rows = bases[np.arange(clients) % 4] + 0.3 * rng.standard_normal(shape)
        rows, points = rows.astype(np.float32), rows[:, :, :width].astype(np.float32)
        weights = np.ones((clients, classes))

        def collaborate(
            rows: FloatArray = rows,
            points: FloatArray = points,
            weights: FloatArray = weights,
        ) -> None:
            clusters = cluster_classes(class_distances(rows, weights), 0.1)
            cluster_means(rows, clusters, weights)
            cluster_means(points, clusters, weights)

        with threadpool_limits(limits=1):
            seconds = median(_times(collaborate, 5 if clients == 20 else 1))
        name = f"FedCCFA: {clients} clients x {classes} classes x {width} features"
        yield Row(name, f"{seconds:.3f} s", f"{limit} s", seconds <= limit)


def ccfl_rows() -> Iterator[Row]:
    """Time an upload at CCFL's server against the naive tests, and against training.

    K = 4, 1,000 public images each, the paper's network. An upload is tested on all
    sets, and 1.9 of 4 clusters, as many as it changes in the mean, on their own. The
    naive tests pass each set at once through the layers as they stand.
    """
    torch.set_num_threads(1)
    settings, clusters, images, changed = CcflCnn(), 4, 1000, 1.9
    made = torch.Generator().manual_seed(0)
    sets = [
        Samples(
            torch.rand(images, 1, 28, 28, generator=made),
            torch.randint(0, 10, (images,), generator=made),
        )
        for _ in range(clusters)
    ]
    validation = Validation(settings.build((1, 28, 28), 10), sets)
    plain = FlatModel(settings.build((1, 28, 28), 10))
    model = plain.to_vector()
    network = cast(Network, plain.module.eval())
    layers = nn.Sequential(*network.extractor.children(), network.classifier)

    @torch.no_grad()
    def naive() -> None:
        for _ in range(2):
            for each in sets:
                plain.load(model)
                logits = layers(each.x)
                float(cross_entropy(logits, each.y))
                int((logits.argmax(1) == each.y).sum())

    def train_once() -> None:
        x, y = sets[0].x, sets[0].y
        local = LocalTraining("adam", epochs=1, batch_size=128, learning_rate=0.01)
        train(plain.load(model), x, y, local, np.random.default_rng(0))

    times = [
        (
            min(_times(lambda: validation.losses(model), 2)),
            min(_times(lambda: validation.own([model.copy()] * clusters), 2)),
            min(_times(naive, 2)),
            min(_times(train_once, 2)),
        )
        for _ in range(3)
    ]
    upload, own, reference, epoch = (
        median(column) for column in zip(*times, strict=True)
    )
    cost = upload + own * changed / clusters
    ratio = cost / reference
    name = "CCFL: an upload against 2K naive tests (K = 4, 1,000 images)"
    yield Row(name, f"{ratio:.2f}x ({cost:.2f} s)", "0.6x", ratio <= 0.6)
    # Two workers train a mean of 1,250 samples in 5 epochs; the server has one core.
    training = epoch * 5 * 1250 / images / 2
    pace = cost / training
    name = "CCFL: an upload at the server against 5 epochs at 2 workers"
    yield Row(name, f"{pace:.2f}x", "1x", pace <= 1)


def _times(step: Callable[[], object], count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "clustering": clustering_rows,
    "rounds": rounds_rows,
    "long": long_rows,
    "memory": memory_rows,
    "data": data_rows,
    "directions": directions_rows,
    "stocfl": stocfl_rows,
    "fedccfa": fedccfa_rows,
    "ccfl": ccfl_rows,
}


def main() -> int:
    """Measure the parts that are asked for; exit code 1 if a limit does not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART")
    chosen = parser.parse_args().parts or list(PARTS)
    rows = [row for part in chosen for row in PARTS[part]()]
    cores = os.cpu_count()
    table = Table(
        title=f"{cores} cores, {platform.machine()}, torch {torch.__version__}"
    )
    for column in ("what", "measured", "limit", "holds"):
        table.add_column(column)
    for row in rows:
        table.add_row(row.name, row.figure, row.limit, "yes" if row.holds else "NO")
    Console(width=110).print(table)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())

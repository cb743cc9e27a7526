"""The table: every work by every library, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
import psutil
import torch

from cfl_flower.config.compose import compose_config
from cfl_flower.config.overrides import split
from cfl_flower.data.reading.pool import cache_dir
from cfl_flower.learning.training import predictions, sample_losses
from cfl_flower.models import FlatModel, initial_vector
from cfl_flower.seeding import generator
from cfl_flower.server_app import open_stream
from cfl_flower.types import Vector
from simulations.benchmark.measure import print_table
from simulations.benchmark.peers import scripts
from simulations.benchmark.peers.scripts.job import DONE, Job
from simulations.engines.superlink import PROJECT

COMMON = """
    dataset.size=28 drift=none clients=1000 participants=20 partition.samples=40
    partition.test_samples=10 strategy.local.epochs=15 strategy.local.batch_size=10
    strategy.local.learning_rate=0.05 system.evaluate_every=999
    system.checkpoint_every=999 rounds=13
"""
"""60 steps for each of 20 of 1,000 clients, whose 40 samples 15 passes go over."""
WORKS = {
    "FedAvg, mclr 784x10": f"{COMMON} partition=iid strategy=fedavg model=mclr",
    "FedAvg, MLP 784-200-10": (
        f"{COMMON} partition=iid strategy=fedavg model=mlp model.hidden=200"
    ),
    "FedAvg, FedCCFA's CNN": (
        f"{COMMON} partition=iid strategy=fedavg model=fedccfa_cnn rounds=8"
    ),
    # Five groups of clients, who call the same images by other labels.
    "IFCA, 5 MLPs 784-200-10": (
        f"{COMMON} partition=shifted partition.shifts=[0,2,4,6,8] strategy=ifca "
        "clusters=5 model=mlp model.hidden=200"
    ),
}
WARM_UP = 3
"""Rounds that are not measured: others compile, workers start."""
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""One thread for each library, and no word of it to others."""
COLUMNS = ("library", "CPU, a step", "a round", "first round", "memory", "accuracy")


class Peer(NamedTuple):
    """A library that does the same work, or an engine of ours."""

    script: str
    needs: tuple[str, ...] = ()
    """What to install; ours is here."""
    methods: tuple[str, ...] = ("fedavg",)
    """The strategies of ours that it has a counterpart of."""
    engine: str = ""
    """Of our own run."""


def all_peers() -> dict[str, Peer]:
    """Return ours and the others, these with the torch and the Flower that we have."""
    here = {name: version(name).partition("+")[0] for name in ("flwr", "ray", "torch")}
    ours_torch = f"torch=={here['torch']}"
    flower = (f"flwr[simulation]=={here['flwr']}", f"ray=={here['ray']}", ours_torch)
    ours = "with_cfl_flower"
    both = ("fedavg", "ifca")
    return {
        "cfl-flower": Peer(ours, methods=both, engine="engine=inprocess"),
        "cfl-flower on Ray": Peer(ours, methods=both, engine="workers=1"),
        "fedjax": Peer("with_fedjax", ("fedjax", "jax"), both),
        "pfl-research": Peer("with_pfl", ("pfl", ours_torch)),
        "Flower's simulation": Peer("with_flower", flower),
    }


class Prepared:
    """The samples of all clients and the initial models of a work."""

    def __init__(self, overrides: str) -> None:
        config = compose_config(split(f"{overrides} engine=inprocess"))
        stream = open_stream(config)
        views = [stream.view(client, 1) for client in range(config.clients)]
        x, y = zip(*(view.train() for view in views), strict=True)
        x_test, y_test = zip(*(view.test() for view in views), strict=True)
        self.x = torch.stack(x)
        self.y = torch.stack(y)
        self.x_test = torch.stack(x_test)
        self.y_test = torch.stack(y_test)
        self.config = config
        shape = config.dataset.shape
        classes = config.dataset.classes
        self.model = FlatModel(config.model.build(shape, classes))
        seeds = [config.seed]
        if hasattr(config.strategy, "clusters"):
            # As the methods draw them whose clients choose.
            draw = generator(config.seed, "cluster-models")
            seeds = draw.integers(2**31, size=config.strategy.clusters).tolist()
        self.start = [initial_vector(config.model, shape, classes, s) for s in seeds]

    def job(self, folder: Path, overrides: str) -> Job:
        """Write what the libraries read, and return what they are to do."""
        for name, array in (("x", self.x), ("y", self.y), ("start", self.start)):
            np.save(folder / name, np.asarray(array))
        local = self.config.strategy.local
        return Job(
            folder=str(folder),
            shapes=[list(each.shape) for each in self.model.module.parameters()],
            rounds=self.config.rounds,
            participants=self.config.participants,
            epochs=local.epochs,
            batch_size=local.batch_size,
            learning_rate=local.learning_rate,
            overrides=split(overrides),
        )

    def accuracy(self, models: Sequence[Vector]) -> float:
        """Return the share of all clients' test samples that are classified correctly.

        Each client takes the model with the smallest loss on its training samples.
        """
        losses = []
        right = []
        for model in models:
            self.model.load(model)
            each = sample_losses(self.model, self.x.flatten(0, 1), self.y.flatten())
            losses.append(each.view_as(self.y).mean(1))
            found = predictions(self.model, self.x_test.flatten(0, 1))
            right.append((found.view_as(self.y_test) == self.y_test).float().mean(1))
        best = torch.stack(losses).argmin(0)
        return float(torch.stack(right).gather(0, best[None]).mean())


def show() -> int:
    """Print the table; return 1 if one of our own engines is missing from it."""
    lines = []
    code = 0
    for work, overrides in WORKS.items():
        prepared = Prepared(overrides)
        for name, peer in all_peers().items():
            if prepared.config.names["strategy"] not in peer.methods:
                continue
            try:
                lines.append([work, name, *measure(prepared, overrides, peer)])
            except subprocess.CalledProcessError as error:
                words = error.stderr.decode().strip().splitlines()[-1:]
                print(f"{name} failed at {work}: {words}")
                # What others' libraries lack is said, and no fault of ours.
                if not peer.needs:
                    code = 1
    print_table("", ("work", *COLUMNS), lines)
    return code


def measure(prepared: Prepared, overrides: str, peer: Peer) -> list[str]:
    """Return the figures of a work by a library, as the table has them."""
    python = install(peer.needs)
    with tempfile.TemporaryDirectory(prefix="cfl-flower-peers-") as folder:
        job = prepared.job(Path(folder), f"{overrides} {peer.engine}")
        # Of ours the other libraries find this package alone.
        Path(folder, "simulations").symlink_to(PROJECT / "simulations")
        module = f"{scripts.__name__}.{peer.script}"
        path = folder if peer.needs else str(PROJECT)
        began = time.monotonic()
        laps, peak = watch([python, "-m", module, json.dumps(vars(job))], path)
        accuracy = prepared.accuracy(list(np.load(Path(folder, "models.npy"))))
    # Without the last round, too: some test all clients in it.
    steady = list(pairwise(laps[WARM_UP - 1 : -1]))
    steps = job.participants * prepared.config.strategy.local.count_steps(
        prepared.y.shape[1]
    )
    step = fmean(after[1] - before[1] for before, after in steady) / steps
    wall = median(after[0] - before[0] for before, after in steady)
    return [
        f"{1e6 * step:.0f} us",
        f"{wall:.3g} s",
        f"{laps[0][0] - began:.1f} s",
        f"{peak / 1e9:.2f} GB",
        f"{accuracy:.3f}",
    ]


def install(needs: Sequence[str]) -> str:
    """Return the Python of an environment with some packages, made once and kept."""
    if not needs:
        return sys.executable
    folder = cache_dir() / "peers" / "-".join(needs)
    python = str(folder / "bin" / "python")
    ready = folder / "ready"
    if not ready.exists():
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [python, "-m", "pip", "install", "--quiet", *needs],
        ):
            subprocess.run(command, check=True, stderr=subprocess.PIPE)
        ready.touch()
    return python


def watch(command: Sequence[str], path: str) -> tuple[list[tuple[float, float]], int]:
    """Run a command; return its laps, and the most bytes of memory that it had.

    A lap is the moment and the CPU seconds of the processes so far, of those that have
    ended as well.
    """
    laps = []
    peak = 0
    variables = {**os.environ, **ONE_THREAD, "PYTHONPATH": path}
    with (
        tempfile.TemporaryFile() as errors,
        psutil.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        for line in process.stdout:
            if line.decode().strip() != DONE:
                continue
            cpu = 0.0
            memory = 0
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):  # it may have ended
                    cpu += sum(each.cpu_times()[:4])
                    memory += each.memory_info().rss
            laps.append((time.monotonic(), cpu))
            peak = max(peak, memory)
        if process.wait():
            errors.seek(0)
            raise subprocess.CalledProcessError(
                process.returncode, command, stderr=errors.read()
            )
    return laps, peak

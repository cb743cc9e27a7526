"""The table: every work by every library, each in a process of its own."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import psutil
import torch

from cfl_flower.config.compose import compose_config
from cfl_flower.config.overrides import split
from cfl_flower.data.reading.pool import cache_dir
from cfl_flower.learning.testing import predictions, sample_losses
from cfl_flower.models import model_of
from cfl_flower.seeding import generator
from cfl_flower.server_app import open_stream
from cfl_flower.types import Vector
from simulations.engines.superlink import PROJECT
from tests.benchmarks.measure import print_table
from tests.benchmarks.peers import scripts
from tests.benchmarks.peers.scripts.job import DONE, Job

COMMON = """
    dataset.size=28 drift=none clients=1000 participants=20 partition.samples=40
    partition.test_samples=10 strategy.local.epochs=15 strategy.local.batch_size=10
    strategy.local.learning_rate=0.05 system.evaluate_every=999
    system.checkpoint_every=999 rounds=10
"""
"""60 steps for each of 20 of 1,000 clients, whose 40 samples 15 passes go over."""
WORKS = {
    "FedAvg, mclr 784x10": f"{COMMON} partition=iid strategy=fedavg model=mclr",
    "FedAvg, MLP 784-200-10": (
        f"{COMMON} partition=iid strategy=fedavg model=mlp model.hidden=200"
    ),
    "FedAvg, FedCCFA's CNN": (
        f"{COMMON} partition=iid strategy=fedavg model=fedccfa_cnn rounds=7"
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
COLUMNS = {
    "CPU us, a step": ".0f",
    "s, a round": ".3f",
    "s, first round": ".1f",
    "GB, memory": ".2f",
    "accuracy": ".4f",
}
"""What is measured, and how many digits of it are said."""
REPEATS = 3


class Peer(NamedTuple):
    """A library that does the same work, or an engine of ours."""

    script: str
    cores: int = 1
    """That all of its processes share."""
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
    forked = "engine=processes workers=2"
    return {
        "cfl-flower": Peer(ours, methods=both, engine="engine=inprocess"),
        "cfl-flower, 2 processes": Peer(ours, 2, methods=both, engine=forked),
        "cfl-flower on Ray": Peer(ours, methods=both, engine="engine=ray workers=1"),
        "cfl-flower on Ray, 2 workers": Peer(
            ours, 2, methods=both, engine="engine=ray workers=2"
        ),
        "fedjax": Peer("with_fedjax", 1, ("fedjax", "jax"), both),
        "pfl-research": Peer("with_pfl", 1, ("pfl", ours_torch)),
        "Flower's simulation": Peer("with_flower", 1, flower),
        "Flower's simulation, 2 actors": Peer("with_flower", 2, flower),
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
        self.model = model_of(config)
        seeds = [config.seed]
        if hasattr(config.strategy, "clusters"):
            # As the methods draw them whose clients choose.
            draw = generator(config.seed, "cluster-models")
            seeds = draw.integers(2**31, size=config.strategy.clusters).tolist()
        self.start = [model_of(config, seed).to_vector() for seed in seeds]

    def job(self, folder: Path, overrides: str, workers: int = 1) -> Job:
        """Write what the libraries read, and return what they are to do."""
        for name, array in (("x", self.x), ("y", self.y), ("start", self.start)):
            np.save(folder / name, np.asarray(array))
        local = self.config.strategy.local
        return Job(
            folder=str(folder),
            shapes=[list(each.shape) for each in self.model.module.parameters()],
            rounds=self.config.rounds,
            participants=self.config.participants,
            workers=workers,
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


def show(repeats: int) -> int:
    """Print the table; return 1 if an engine of ours fails, or differs in a repeat."""
    load = os.getloadavg()[0]
    lines = []
    faults = []
    for work, overrides in WORKS.items():
        prepared = Prepared(overrides)
        method = prepared.config.names["strategy"]
        peers = {name: p for name, p in all_peers().items() if method in p.methods}
        found: dict[str, list[list[float]]] = {name: [] for name in peers}
        # They take turns, as machines slow down.
        for name in list(peers) * repeats:
            try:
                if name in found:
                    found[name].append(measure(prepared, overrides, peers[name]))
            except subprocess.CalledProcessError as error:
                words = error.stderr.decode().strip().splitlines()[-1:]
                print(f"{name} failed at {work}: {words}")
                faults.append(peers[name])
                del found[name]
        for name, runs in found.items():
            columns = list(zip(*runs, strict=True))
            if not peers[name].needs and len(set(columns[-1])) > 1:
                print(f"{name} learns something else in each repeat of {work}")
                faults.append(peers[name])
            cells = map(spread, columns, COLUMNS.values())
            lines.append([work, name, str(peers[name].cores), *cells])
    title = (
        f"load {load:.2f} before, {os.cpu_count()} cores, {cpu_name()}, "
        f"torch {torch.__version__}, median (range) of {repeats}"
    )
    print_table(title, ("work", "library", "cores", *COLUMNS), lines)
    # What others' libraries lack is said, and no fault of ours.
    return int(not all(peer.needs for peer in faults))


def spread(values: Sequence[float], form: str) -> str:
    """Write the median of values, and their range where they differ."""
    middle = f"{median(values):{form}}"
    if min(values) == max(values):
        return middle
    return f"{middle} ({min(values):{form}}-{max(values):{form}})"


def cpu_name() -> str:
    """Return what the processor is called; its kind where it has no name."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def measure(prepared: Prepared, overrides: str, peer: Peer) -> list[float]:
    """Return the figures of a work by a library, as `COLUMNS` has them."""
    python = install(peer.needs)
    cores = sorted(os.sched_getaffinity(0))[: peer.cores]
    with tempfile.TemporaryDirectory(prefix="cfl-flower-peers-") as folder:
        job = prepared.job(Path(folder), f"{overrides} {peer.engine}", peer.cores)
        # Of ours the other libraries find this package alone.
        Path(folder, "tests").symlink_to(PROJECT / "tests")
        module = f"{scripts.__name__}.{peer.script}"
        path = folder if peer.needs else str(PROJECT)
        # What it starts keeps to the same cores.
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cores)), python]
        began = time.monotonic()
        command = [*pinned, "-m", module, json.dumps(vars(job))]
        moments, seconds, peak = watch(command, path, job.rounds)
        accuracy = prepared.accuracy(list(np.load(Path(folder, "models.npy"))))
    # Without the last rounds, too: some test all clients in the last one, and while
    # the one before is looked at, the processes may have ended.
    steady = np.diff(moments[WARM_UP - 1 : -2])
    steps = job.participants * prepared.config.strategy.local.count_steps(
        prepared.y.shape[1]
    )
    step = (seconds[-3] - seconds[WARM_UP - 1]) / len(steady) / steps
    first = moments[0] - began
    return [1e6 * step, float(np.median(steady)), first, peak / 1e9, accuracy]


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


def watch(
    command: Sequence[str], path: str, rounds: int
) -> tuple[list[float], list[float], int]:
    """Run a command; return the moments at which its rounds were done.

    Also the CPU seconds and the most bytes of its processes then. During the steady
    rounds they are not looked at.
    """
    moments: list[float] = []
    seconds = []
    peak = 0
    processes = []
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
            moments.append(time.monotonic())
            if WARM_UP < len(moments) < rounds - 2:
                continue
            cpu = 0.0
            memory = 0
            processes = [process, *process.children(recursive=True)]
            for each in processes:
                with suppress(psutil.Error):  # it may have ended
                    cpu += sum(each.cpu_times()[:4])
                    # Of what several share each has its part.
                    memory += each.memory_full_info().pss
            seconds.append(cpu)
            peak = max(peak, memory)
        if process.wait():
            errors.seek(0)
            raise subprocess.CalledProcessError(
                process.returncode, command, stderr=errors.read()
            )
    # Ray's end after it: the next one is to find the cores free.
    psutil.wait_procs(processes, timeout=20)
    return moments, seconds, peak

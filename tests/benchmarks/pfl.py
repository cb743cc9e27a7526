"""The job by which simulators are compared: pfl-research's CIFAR-10, with our rounds.

1,000 clients of 50 samples, of whom 50 train in a round, for one epoch in batches of
10, with SGD at 0.1; a test every ten rounds; 1,500 rounds on a GPU, and 10 on a CPU
(Granqvist et al., 2024, section 4). CIFAR-10 is read from ``cifar10.npz`` in the data
folder (`dataset=npz`). Without it, random images of its size take as long.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from cfl_flower.config.overrides import split
from tests.benchmarks import measure as bench

RUN = """
    strategy=fedavg strategy.local.epochs=1 strategy.local.batch_size=10
    strategy.local.learning_rate=0.1 clients=1000 participants=50 partition=iid
    drift=none engine=inprocess system.evaluate_every=10 system.checkpoint_every=500
"""

DATA = ("dataset=npz", "dataset.file=cifar10.npz")

SECONDS = 60.0
"""What 1,500 rounds may take on one H100."""


class SimpleCnn(nn.Sequential):
    """Convolutions of 32 and 64 channels, and a dense layer of 128."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__(
            *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten()),
            *(nn.Linear(64 * 14 * 14, 128), nn.ReLU(), nn.Dropout(0.5)),
            nn.Linear(128, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (n, classes), of images (n, 3, 32, 32)."""
        logits: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return logits


def rows() -> Iterator[bench.Row]:
    """Carry out the job, or its first rounds."""
    on_gpu = torch.cuda.is_available()
    rounds = 1500 if on_gpu else 10
    with tempfile.TemporaryDirectory() as folder:
        data = Path(os.environ.get("CFL_DATA_DIR", folder))
        kind = "CIFAR-10"
        if not (data / "cifar10.npz").exists():
            data = Path(folder)
            kind = "random images"
            write_images(data / "cifar10.npz")
        options = [*split(RUN), *DATA, f"model._target_={__name__}.SimpleCnn"]
        options += [f"rounds={rounds}", f"data_dir={data}"]
        options += [f"gpus_per_worker={int(on_gpu)}", f"output_dir={folder}/run"]
        found = bench.carry_out(options)
    seconds = np.array([each["seconds"] for each in found.rounds])
    total = float(seconds.sum())
    name = f"pfl's job on {kind}: {rounds} rounds"
    limit = SECONDS if on_gpu else np.inf
    yield bench.within(name, total, limit, "s", f"{np.median(seconds):.3g} a round")
    accuracy = found.rounds[-1]["accuracy"]
    yield bench.Row("its accuracy at the end", f"{accuracy:.3f}", "-", True)
    memory = torch.cuda.max_memory_reserved() if on_gpu else bench.peak_bytes()
    yield bench.Row("its peak memory", f"{memory / 1e9:.2f} GB", "-", True)


def write_images(path: Path) -> None:
    """Write as many random images as CIFAR-10 has."""
    rng = np.random.default_rng(0)
    parts = {}
    for part, count in (("train", 50_000), ("test", 10_000)):
        parts[f"x_{part}"] = rng.integers(0, 256, (count, 32, 32, 3), np.uint8)
        parts[f"y_{part}"] = rng.integers(0, 10, count)
    np.savez(path, **parts)

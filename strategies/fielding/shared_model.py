"""A shared model by which all clients represent their data: Fielding, Appendix E.1.

The server pre-trains it on a few samples of each class, or reads it from a file, and
sends it once, with the hello. It has the run's network.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from cfl_flower.data.reading.files import intact
from cfl_flower.learning.decoupling import balanced_batch
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import pretrain
from cfl_flower.models import build_model
from cfl_flower.run_config import RunConfig
from cfl_flower.seeding import generator, seed_torch, torch_seed
from cfl_flower.settings import Count, Natural, Positive, require, settings
from cfl_flower.types import Vector

WHERE = "strategy.representation.shared"
"""The key of these settings."""


@settings(WHERE)
class SharedModel:
    """Where the shared model comes from."""

    path: str | None = None
    """File of the shared model, d float32 numbers as .npy, absolute or below
    `data_dir`; null to pre-train it, where the data are simulated."""
    samples: Natural = 200
    """Samples of each class for the pre-training."""
    epochs: Count = 30
    """Passes of the pre-training; the paper has 300, of a larger network."""
    batch_size: Count = 20
    """Samples of a mini-batch of the pre-training."""
    learning_rate: Positive = 0.1
    """Learning rate of the pre-training."""

    def __post_init__(self) -> None:
        ok = self.path is not None or self.samples > 0
        allowed = "at least 1, or give a shared model by path"
        require(ok, f"{WHERE}.samples", self.samples, allowed)

    def make(self, config: RunConfig, initial: Vector, simulated: bool) -> Vector:
        """Return the shared model, trained from the initial one, both of shape (d,).

        Raises `ConfigError` if the file cannot be read or is of another network, if the
        data to pre-train on are not here (not ``simulated``), or if the training
        diverged.
        """
        if self.path is None:
            allowed = "a file: there are no data here to pre-train a shared model on"
            require(simulated, f"{WHERE}.path", "null", allowed)
            return self._pretrain(config, initial)
        path = Path(config.data_dir, self.path).expanduser()
        with intact(path):
            found = np.load(path, allow_pickle=False)
        allowed = f"a file with the {len(initial)} float32 numbers of the run's network"
        what = f"{path} ({found.dtype}{found.shape})"
        ok = found.shape == initial.shape and found.dtype == np.float32
        require(ok and np.isfinite(found).all(), f"{WHERE}.path", what, allowed)
        return np.asarray(found, np.float32)

    def _pretrain(self, config: RunConfig, initial: Vector) -> Vector:
        dataset = config.dataset
        pool = dataset.load(config.data_dir)[0]
        rng = generator(config.seed, "shared-model")
        chosen = balanced_batch(pool.labels, self.samples, rng)
        seed_torch(torch_seed(config.seed, "shared-model"))
        model = build_model(config.model, dataset.shape, dataset.classes, config.seed)
        local = LocalTraining(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
        )
        x = pool.inputs(torch.from_numpy(chosen))
        y = torch.from_numpy(pool.labels[chosen])
        return pretrain(model, initial, x, y, local, rng, WHERE)

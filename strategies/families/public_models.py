"""K models of distributions, pre-trained by the server on a public set of each."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from pathlib import Path

import torch

from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.worlds.timeline import Timeline
from cfl_flower.engine.uploads_state import AsynchronousSettings
from cfl_flower.errors import ConfigError
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import pretrain
from cfl_flower.models import model_of
from cfl_flower.run_config import RunConfig
from cfl_flower.seeding import generator, seed_torch, torch_seed
from cfl_flower.settings import Count, Natural, require, settings
from cfl_flower.types import Vector
from strategies.families.public_sets import (
    Samples,
    Validation,
    distributions,
    public_sets,
    sets_in_folders,
)

CLUSTER_TESTS = 2000
"""Test samples of each distribution on which the simulation tests its model."""


@settings("strategy")
class PublicSettings(AsynchronousSettings):
    """The public sets, and how models are pre-trained on them."""

    clusters: Count | None = None
    """K; null for the number of public sets, and no other number is allowed."""
    public: Count = 100
    """Samples of each public set, drawn from those that simulated clients train on."""
    public_dir: str | None = None
    """A real server's own: a folder with a folder for each public set."""
    pretraining: LocalTraining = field(default_factory=LocalTraining)
    """Training of the K models on their public sets before the first round."""
    common_epochs: Natural = 0
    """Epochs on the union of all public sets before each model is trained on its own,
    so that the K models share a start and their averages are of use; 0: they share
    the untrained initial model."""


class PublicModels:
    """The public sets of a run; the server pre-trains and tests models on them."""

    def __init__(self, config: RunConfig, timeline: Timeline | None) -> None:
        self._config = config
        self._timeline = timeline

    @cached_property
    def sets(self) -> list[Samples]:
        """The public sets, one for each distribution of the data.

        Raises `ConfigError` for devices' own data without a `public_dir`, and in a
        simulation if the folder has not one set for each distribution.
        """
        config = self._config
        folder = self._config.strategy.public_dir
        if folder is not None:
            sets = sets_in_folders(config.dataset, str(Path(config.data_dir, folder)))
            if self._timeline is not None:
                count = len(distributions(config.partition, self._timeline))
                allowed = f"a folder with {count} sets, one for each distribution"
                require(len(sets) == count, "strategy.public_dir", folder, allowed)
            return sets
        if isinstance(config.dataset, Folder):
            raise ConfigError(
                "strategy.public_dir=null is not allowed with devices' own data; use a "
                "folder on the server with a folder of samples for each distribution"
            )
        train_pool = config.dataset.load(config.data_dir)[0]
        found = distributions(config.partition, config.timeline)
        size = config.strategy.public
        return public_sets(found, train_pool, size, config.seed, "public")

    @cached_property
    def validation(self) -> Validation:
        """The public sets, to evaluate models on."""
        return Validation(model_of(self._config), self.sets)

    @cached_property
    def tests(self) -> Validation | None:
        """Test samples of each distribution; None without a simulation."""
        config = self._config
        if self._timeline is None:
            return None
        pool = config.dataset.load(config.data_dir)[1]
        found = distributions(config.partition, self._timeline)
        sets = public_sets(found, pool, CLUSTER_TESTS, config.seed, "cluster-tests")
        return Validation(model_of(self._config), sets)

    def pretrain(self, initial: Vector) -> list[Vector]:
        """Train the initial model on the union of the sets, then on each of them."""
        settings = self._config.strategy
        local = settings.pretraining
        if settings.common_epochs:
            union = Samples(*map(torch.cat, zip(*self.sets, strict=True)))
            common = replace(local, epochs=settings.common_epochs)
            (initial,) = self._train(initial, [union], common, "common-pretraining")
        return self._train(initial, self.sets, local, "pretraining")

    def _train(
        self, start: Vector, sets: list[Samples], local: LocalTraining, purpose: str
    ) -> list[Vector]:
        """Return a model after training on each of some sets."""
        seed = self._config.seed
        key = "strategy.pretraining"
        found = []
        for number, each in enumerate(sets):
            seed_torch(torch_seed(seed, purpose, 0, number))
            model = model_of(self._config)
            rng = generator(seed, purpose, 0, number)
            found.append(pretrain(model, start, each.x, each.y, local, rng, key))
        return found

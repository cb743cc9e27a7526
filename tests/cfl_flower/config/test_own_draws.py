"""What one's own parts draw must be the same each time that they are made."""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.drift import Change, Occasion
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.world import Layout, World, alter
from cfl_flower.errors import ConfigError
from cfl_flower.seeding import generator
from cfl_flower.server_app import open_stream
from cfl_flower.settings import settings
from cfl_flower.types import BoolArray

TURNS = itertools.count()

UNSEEDED: dict[str, Callable[[], float]] = {
    "Python's": random.random,
    "NumPy's": np.random.random,
    "torch's": lambda: float(torch.rand(1)),
    "its own": lambda: float(np.random.default_rng().random()),
    "a memory": lambda: 1 / (1 + next(TURNS)),
}


@settings("partition")
class Uneven(Partition):
    """A partition whose demand is what the test says."""

    drawn: str = ""

    def layout(self, clients: int, classes: int, known: object, seed: int) -> Layout:
        """Return a layout in which client 0 wants another share of label 0."""
        draw = UNSEEDED.get(self.drawn, generator(seed, "mine").random)
        demand = np.ones((clients, classes))
        demand[0, 0] = draw()
        return Layout(demand, np.zeros(clients, np.int64))


@settings("drift")
class Turned(Change):
    """A drift that turns images by what the test says."""

    drawn: str = ""

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world with other angles."""
        draw = UNSEEDED.get(self.drawn, occasion.rng.random)
        return alter(world, chosen, degrees=draw())


@pytest.mark.parametrize("drawn", [*UNSEEDED, ""])
@pytest.mark.parametrize("part", [Uneven, Turned])
def test_one_s_own_data_follow_from_the_seed_alone(part, drawn):
    group = part.__base__.__name__.lower().replace("change", "drift")
    own = f"{group}._target_={part.__module__}.{part.__qualname__}"
    base = ["drift=none", own, f"{group}.drawn={drawn!r}", "rounds=3"]
    overrides = base if part is Uneven else [*base[1:], "drift.rounds=[2]"]
    if not drawn:
        compose_config(overrides)
        return
    with pytest.raises(ConfigError, match=f"^{group}: .*(each time|np.random)"):
        compose_config(overrides)


@settings("dataset")
class Noisy(Digits):
    """Digits with the noise that the test says."""

    drawn: str = ""

    def load(self, data_dir: str = "") -> tuple[Pool, Pool]:
        """Return samples that are brighter by what is drawn."""
        train, test = super().load(data_dir)
        draw = UNSEEDED.get(self.drawn, generator(0, "mine").random)
        return replace(train, x=train.x + draw()), test


@pytest.mark.parametrize("drawn", [*UNSEEDED, ""])
def test_the_samples_of_one_s_own_dataset_are_the_same_in_every_process(drawn):
    own = f"dataset._target_={Noisy.__module__}.Noisy"
    config = compose_config(["drift=none", own, f"dataset.drawn={drawn!r}"])
    if not drawn:
        open_stream(config)
        return
    with pytest.raises(ConfigError, match=r"^dataset: load returns other samples"):
        open_stream(config)

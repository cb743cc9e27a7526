"""When something changes, and for whom.

A change is a function from one `World` to the next: who holds what, and how it is
shown. No sample is touched; `worlds.stream` makes a client's data from a world. What
there is of changes: `worlds.changes`, `worlds.arrivals`, `worlds.appearance`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import Field

from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.world import World
from cfl_flower.errors import ConfigError
from cfl_flower.seeding import generator, no_common_draws
from cfl_flower.settings import Count, Fraction, require, settings
from cfl_flower.types import BoolArray, IntArray


def wished_labels(world: World, number: int) -> BoolArray:
    """Return the labels that each client wished for in an allocation, (clients, L)."""
    return world.allocations[number].layout.demand > 0


@dataclass(frozen=True)
class Occasion:
    """One time that an event happens; its random draws follow from this alone."""

    partition: Partition
    seed: int
    round: int
    number: int
    """Number of the event in its schedule."""
    occurrence: int
    """Number of earlier occurrences."""
    labels: Callable[[World, int], BoolArray] = wished_labels
    """Returns of which labels each client got samples in an allocation."""

    def held(self, world: World) -> BoolArray:
        """Return the original labels that each client holds, shape (clients, L)."""
        return world.held(self.labels)

    def draw_labels(self, count: int, classes: int) -> IntArray:
        """Return ``count`` labels, or raise a `ConfigError` if there are fewer."""
        require(count <= classes, "drift.random_labels", count, f"at most {classes}")
        return self.rng.permutation(classes)[:count]

    @cached_property
    def rng(self) -> np.random.Generator:
        """The generator of its draws."""
        return generator(self.seed, f"drift/{self.number}", self.round)


@settings("drift")
class Schedule:
    """Several events."""

    rounds: list[int] = field(default_factory=list)
    """Rounds that the events of a preset refer to; without effect of its own."""
    width: Count = 1
    """Width that the events of a preset refer to; without effect of its own."""
    steps: dict[str, Any] = field(default_factory=dict)
    """The events, or further schedules, in their order."""

    @property
    def events(self) -> Mapping[str, Change]:
        """What happens, by keys; events of one round happen in this order."""
        return {
            f"drift.steps.{name}{place.removeprefix('drift')}": event
            for name, step in self.steps.items()
            for place, event in step.events.items()
        }

    def __post_init__(self) -> None:
        ok = all(one < two for one, two in pairwise(self.rounds))
        require(ok, "drift.rounds", self.rounds, "ascending rounds")
        for name, step in self.steps.items():
            ok = isinstance(step, Change | Schedule)
            kind = type(step).__name__
            require(ok, f"drift.steps.{name}", kind, "a kind of change")


@settings("drift")
class Change(ABC):
    """One kind of event: when it happens and whom it concerns."""

    rounds: list[int] = field(default_factory=list)
    """The rounds at whose start it happens; in overrides and presets a number between
    0 and 1 is a share of the run, so that 0.5 is the first round of its second half."""
    every: Count | None = None
    """It also happens every so many rounds, from round ``first`` on; a number between 0
    and 1 is a share of the run, as in `rounds`."""
    first: Count = 2
    """The round from which `every` counts."""
    width: Count = 1
    """Rounds in which it takes place: gradually, one share of the samples after the
    other, which are the same for all clients and times. A number between 0 and 1 is a
    share of the run. A client's true concept is that of most of its samples."""
    fraction: Fraction = 1.0
    """Share of the clients it concerns, chosen at random each time."""
    ids: Annotated[list[int], Field(min_length=1)] | None = None
    """The clients it may concern."""
    modulo: Count | None = None
    """It concerns clients whose id modulo this number is one of `residues`."""
    residues: list[int] = field(default_factory=list)
    """Residues, modulo `modulo`, of the ids of the clients concerned."""

    def __post_init__(self) -> None:
        ascending = all(one < two for one, two in pairwise(self.rounds))
        ok = ascending and all(server_round >= 1 for server_round in self.rounds)
        require(ok, "drift.rounds", self.rounds, "ascending rounds of at least 1")
        ok = (self.modulo is None) == (len(self.residues) == 0)
        require(ok, "drift.residues", self.residues, "them together with drift.modulo")
        ok = all(0 <= residue < (self.modulo or 1) for residue in self.residues)
        allowed = f"numbers from 0 to below modulo={self.modulo}"
        require(ok, "drift.residues", self.residues, allowed)

    @property
    def events(self) -> Mapping[str, Change]:
        """What happens: one event."""
        return {"drift": self}

    def times(self, total: int) -> list[int]:
        """Return the rounds at whose start it happens, of ``total`` rounds."""
        regular = range(self.first, total + 1, self.every) if self.every else ()
        return sorted({*self.rounds, *regular})

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `ConfigError` if it does not fit inputs of a shape: most fit any."""
        del shape

    def rehearse(self, shape: tuple[int, ...], classes: int) -> None:
        """Raise `ConfigError` if what it does to samples fails: most do nothing."""
        del shape, classes

    def apply(self, world: World, occasion: Occasion) -> World:
        """Draw whom it concerns and return the world after it."""
        chosen = self._choose(world.clients, occasion.rng)
        try:
            with no_common_draws(f"drift: {type(self).__name__}.change"):
                after = self.change(world, chosen, occasion)
            said = f"drift: what {type(self).__name__}.change returns"
            require(isinstance(after, World), said, type(after).__name__, "a World")
            self._check_traits(after)
            return after
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise ConfigError(
                f"drift: {type(self).__name__}.change writes into an array of the "
                "world before; return a new one, as alter(world, chosen, ...) does"
            ) from error

    def _check_traits(self, world: World) -> None:
        """Raise `ConfigError` for numbers that no label, client or angle has."""
        known = {"relabel": world.classes, "source": world.clients}
        for name, end in known.items():
            values = getattr(world, name)
            wrong = np.unique(values[(values < 0) | (values >= end)])[:3]
            said = f"drift: {name} after {type(self).__name__}.change"
            require(
                not wrong.size, said, wrong.tolist(), f"numbers from 0 to {end - 1}"
            )
        wrong = np.unique(world.degrees[~np.isfinite(world.degrees)])[:3]
        said = f"drift: degrees after {type(self).__name__}.change"
        require(not wrong.size, said, wrong.tolist(), "finite numbers")

    @abstractmethod
    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it, for some clients, a mask of shape (clients,)."""

    def candidates(self, clients: int) -> BoolArray:
        """Return whom it may concern, shape (clients,)."""
        able = np.ones(clients, bool)
        if self.ids is not None:
            ok = all(0 <= client < clients for client in self.ids)
            require(ok, "drift.ids", self.ids, f"clients from 0 to {clients - 1}")
            able = np.isin(np.arange(clients), self.ids)
        if self.modulo is not None:
            able &= np.isin(np.arange(clients) % self.modulo, self.residues)
        return able

    def _choose(self, clients: int, rng: np.random.Generator) -> BoolArray:
        candidates = np.flatnonzero(self.candidates(clients))
        count = round(self.fraction * len(candidates))
        chosen = np.zeros(clients, bool)
        chosen[rng.permutation(candidates)[:count]] = True
        return chosen


Drift: TypeAlias = Schedule | Change
"""A schedule of changes, or a single one."""

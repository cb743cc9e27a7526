"""The worlds of a run, one after the other: their true concepts, and who got what."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from cfl_flower.data.worlds.allocation import SamplePair
from cfl_flower.data.worlds.drift import Change, Occasion, wished_labels
from cfl_flower.data.worlds.partition import Partition, Pools
from cfl_flower.data.worlds.world import Transition, World, differs
from cfl_flower.settings import located, require
from cfl_flower.types import BoolArray, IntArray

KEPT = 3
"""Periods in memory: those of a round and of the next one, and one more."""


@dataclass(eq=False)
class Timeline:
    """All worlds of a run, and the true concept of every client in every round.

    A concept is a label distribution, a domain, a rotation, a naming of the labels, and
    how the training samples of each look. How test samples look is none, as no model
    learns from them, nor which labels and samples have arrived. Concepts are numbered
    over the whole run, in the order of their first appearance. ``events`` have
    the keys that errors name, and ``rounds`` are those at whose start one happens.
    ``labels`` returns of which labels each client got samples in an allocation; it is
    called by drifts of held labels alone.
    """

    partition: Partition
    events: Mapping[str, Change]
    clients: int
    classes: int
    seed: int
    total: int
    labels: Callable[[World, int], BoolArray] = wished_labels

    def __post_init__(self) -> None:
        events = self.events
        # The last round's reports, and a prequential test, are of the round after it.
        self._times = {at: event.times(self.total + 1) for at, event in events.items()}
        begun = {(time, events[at].width) for at in events for time in self._times[at]}
        self.rounds = sorted({time + step for time, n in begun for step in range(n)})
        self._numbers: dict[bytes, int] = {}
        # By period: whether its world is another than that of the period before.
        self._changed: dict[int, bool] = {}
        self._periods: OrderedDict[int, tuple[World, IntArray]] = OrderedDict()

    @cached_property
    def changes(self) -> list[int]:
        """The rounds after the first at whose start what is held changes.

        An event changes nothing where it concerns nobody, or after a stream's end.
        """
        found = []
        for period, server_round in enumerate(self.rounds, 1):
            if period not in self._changed:
                self._period(period)
            if server_round > 1 and self._changed[period]:
                found.append(server_round)
        return found

    @property
    def acts(self) -> bool:
        """Whether any event changes what is held, be it in the first round."""
        return bool(self.changes) or any(self._changed.values())

    @cached_property
    def has_concepts(self) -> bool:
        """Whether there are several true concepts in the run, which clusters can meet.

        Owners or Dirichlet clients without a drift all have the same one.
        """
        first = self.concepts(1)[0]
        shown = self.shown(self.total)
        return any((self.concepts(each) != first).any() for each in shown)

    def shown(self, last: int) -> list[int]:
        """Return 1 and the rounds of `changes` up to the last one."""
        return [1, *(each for each in self.changes if each <= last)]

    def world(self, server_round: int) -> World:
        """Return the world of a round."""
        return self._period(self.period(server_round))[0]

    def concepts(self, server_round: int) -> IntArray:
        """Return the true concept of each client, shape (clients,)."""
        return self._period(self.period(server_round))[1]

    def first_round(self, server_round: int) -> int:
        """Return the first round of the period that a round is in."""
        period = self.period(server_round)
        return self.rounds[period - 1] if period else 1

    def period(self, server_round: int) -> int:
        """Return how many changes have happened by a round."""
        return bisect_right(self.rounds, server_round)

    def _period(self, period: int) -> tuple[World, IntArray]:
        nearest = max((known for known in self._periods if known <= period), default=-1)
        for step in range(nearest + 1, period + 1):
            if step:
                before = self._periods[step - 1][0]
                world = self._after(before, step)
                self._changed[step] = differs(before, world)
            else:
                world = self.partition.begin(self.clients, self.classes, self.seed)
            self._periods[step] = world, self._number(world)
            while len(self._periods) > KEPT:
                self._periods.popitem(last=False)
        return self._periods[period]

    def _after(self, world: World, period: int) -> World:
        """Apply the events of the period's first round, in their order."""
        server_round = self.rounds[period - 1]
        now = world.transition
        if now is not None:
            share = (server_round - now.began + 1) / now.width
            then = None if share >= 1 else now._replace(share=share)
            world = replace(world, transition=then)
        known = self.partition, self.seed, server_round
        for number, (place, event) in enumerate(self.events.items()):
            times = self._times[place]
            if server_round in times:
                earlier = times.index(server_round)
                with located(place):
                    occasion = Occasion(*known, number, earlier, self.labels)
                    world = _apply(event, world, occasion)
        return world

    def _number(self, world: World) -> IntArray:
        world = world.majority
        traits = (world.groups, world.domains, world.degrees, world.relabel)
        rows = np.column_stack([*traits, world.looks])
        kinds, kind = np.unique(rows, axis=0, return_inverse=True)
        for each in kinds:
            self._numbers.setdefault(each.tobytes(), len(self._numbers))
        numbers = [self._numbers[kinds[each].tobytes()] for each in kind.reshape(-1)]
        return np.array(numbers, np.int64)


def _apply(event: Change, world: World, occasion: Occasion) -> World:
    """Return the world after an event, which a transition may be on the way to."""
    now = world.transition
    if now is not None:
        ok = (now.began, now.width) == (occasion.round, event.width)
        over = now.began + now.width - 1
        allowed = f"rounds after {over}: a gradual change takes until then"
        require(ok, "drift.rounds", f"[{occasion.round}]", allowed)
    after = event.apply(world, occasion)
    if event.width > 1 and now is None and differs(world, after):
        started = Transition(world, occasion.round, event.width, 1 / event.width)
        return replace(after, transition=started)
    return after


class Holdings:
    """The samples that clients got in each allocation of a run.

    ``load`` returns the pools for training and for testing. It is called once, when
    anything is asked for: most drifts ask for nothing, and need no data loaded.
    """

    def __init__(
        self, partition: Partition, seed: int, load: Callable[[], Pools]
    ) -> None:
        self._partition = partition
        self._seed = seed
        self._pools = cache(load)
        self._samples: dict[int, SamplePair] = {}
        self._labels: dict[int, BoolArray] = {}

    def samples(self, world: World, number: int) -> SamplePair:
        """Return who got which samples in an allocation of a world."""
        if number not in self._samples:
            first = self.samples(world, 0) if number else None
            self._samples[number] = self._partition.allocate_samples(
                self._pools(), world.allocations[number], self._seed, first
            )
        return self._samples[number]

    def labels(self, world: World, number: int) -> BoolArray:
        """Return of which labels each client got training samples in an allocation.

        By the original labels, shape (clients, L).
        """
        if number not in self._labels:
            pool = self._pools()[0]
            train = self.samples(world, number)[0]
            found = np.zeros((world.clients, world.classes), bool)
            for client in range(world.clients):
                found[client, pool.labels_at(train[client])] = True
            self._labels[number] = found
        return self._labels[number]

"""What each client holds in each round of a simulation."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from weakref import WeakMethod

import numpy as np

from cfl_flower.data.reading.doubts import other_scale, seen_before
from cfl_flower.data.reading.pool import Dataset, load_pools, said_of_one
from cfl_flower.data.worlds.drift import Drift
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.timeline import Holdings, Timeline
from cfl_flower.data.worlds.view import View
from cfl_flower.data.worlds.world import (
    AT_RANDOM,
    BY_RANK,
    BY_TIME,
    World,
    traits,
)
from cfl_flower.environment.plugins import from_outside
from cfl_flower.errors import ConfigError
from cfl_flower.seeding import generator
from cfl_flower.types import FloatArray, IntArray


def say_empty(empty: int, clients: int, verb: str) -> str:
    """Say how many clients can train or test on nothing, and what to do about it.

    Examples
    --------
    >>> say_empty(1571, 3000, "train")
    '1,571 of 3,000 clients hold no sample to train on; use fewer, or another partition'
    """
    held = f"{empty:,} of {clients:,} clients hold no sample to {verb} on"
    return f"{held}; use fewer, or another partition"


class Stream:
    """All clients' data in all rounds of a run; torch has them on ``device``."""

    def __init__(
        self,
        dataset: Dataset,
        partition: Partition,
        drift: Drift,
        clients: int,
        seed: int,
        rounds: int,
        data_dir: str = "",
        device: str = "cpu",
    ) -> None:
        self.classes = dataset.classes
        self.rounds = rounds
        self._partition = partition
        self._seed = seed
        train, test = load_pools(dataset, data_dir)
        pools = train.to(device), test.to(device)
        self._pools = pools
        self._from_outside = from_outside(dataset)
        self._holdings = Holdings(partition, seed, lambda: pools)
        labels = self._holdings.labels
        self.timeline = Timeline(
            partition, drift.events, clients, dataset.classes, seed, rounds, labels
        )
        self._held_out = partition.held_out(len(train.labels), seed)
        self._shared = partition.shared_samples(train.labels, seed)
        # Weak: a stream that referred to itself would keep its files open.
        make = WeakMethod(self._make_view)

        # Those of a round and of the next one.
        @lru_cache(maxsize=2 * clients)
        def views(client: int, server_round: int) -> View:
            method = make()
            assert method is not None
            return method(client, server_round)

        self._views = views

    def view(self, client: int, server_round: int) -> View:
        """Return the data of one client in one round."""
        return self._views(client, self.timeline.first_round(server_round))

    def samples(self) -> str:
        """Return what names the samples that there are, whoever holds them."""
        return "-".join(pool.digest() for pool in self._pools)

    def empty(self, part: int) -> int:
        """Return how many clients were allocated no sample of a pool at first."""
        world = self.timeline.world(1)
        found = self._holdings.samples(world, 0)[part]
        hands = (found[client] for client in range(world.clients))
        if part == 0 and self._partition.validation:
            kept = ~self._held_out
            hands = (hand[kept[hand % len(kept)]] for hand in hands)
        # Whom the others' samples are enough for.
        fed = self._partition.tests != "own" if part else len(self._shared)
        return 0 if fed else sum(not len(hand) for hand in hands)

    def idle(self) -> str:
        """Say how many periods of a stream in time bring no sample, if any do."""
        ends = {0.0}
        for server_round in self.timeline.shown(self.rounds):
            world = self.timeline.world(server_round)
            ends.update(world.until[world.order == BY_TIME].tolist())
        if len(ends) == 1:
            return ""
        brought, _ = np.histogram(self._moments[0], sorted(ends))
        empty = int((brought == 0).sum())
        told = f"{empty} of {len(brought)} periods bring no sample to train on"
        remedy = "see dataset.time, or take fewer drift.periods, or drift.order=own"
        return f"{told}: none was taken in their time; {remedy}" if empty else ""

    def notes(self) -> list[str]:
        """Return what makes the clients' data probably not what was meant."""
        clients = self.timeline.world(1).clients
        empty = {verb: self.empty(part) for part, verb in enumerate(("train", "test"))}
        told = [say_empty(n, clients, verb) for verb, n in empty.items() if n]
        if self._partition.validation and not self._held_out.any():
            share = f"partition.validation={self._partition.validation:g}"
            told.append(f"{share} holds out no sample: nothing is validated")
        if self._from_outside:
            # A dataset of files has been looked at when it was read.
            both = [pool.x.cpu().numpy() for pool in self._pools]
            told += [*other_scale(*both), *seen_before(*both)]
        return [line for line in (*told, self.idle()) if line]

    def require_samples(self) -> None:
        """Raise `ConfigError` for a round in which no client can train, or no tests."""
        worlds = map(self.timeline.world, self.timeline.shown(self.rounds + 1))
        held = (self._indices(w, each, 1) for w in worlds for each in range(w.clients))
        if self._partition.tests == "own" and not any(map(len, held)):
            more = "another partition, fewer clients, or more samples for tests"
            raise ConfigError(f"no client has samples to test on; take {more}")
        for number in self.timeline.shown(self.rounds):
            world = self.timeline.world(number)
            held = (self._indices(world, each, 0) for each in range(world.clients))
            if not (len(self._shared) or any(map(len, held))):
                told = (
                    f"no client has samples to train on in round {number}; see "
                    "cfl-flower preview, and take another partition or drift (with "
                    "drift=timestamps a longer drift.window or fewer drift.periods)"
                )
                raise ConfigError("; ".join(filter(None, [told, self.idle()])))

    def fingerprint(self) -> str:
        """Return 16 bytes, in hexadecimal, that name what clients hold in the run."""
        state = blake2b(digest_size=16)
        for server_round in [1, *self.timeline.rounds]:
            if server_round > self.rounds:
                break
            world = self.timeline.world(server_round)
            state.update(repr(server_round).encode())
            for name, value in sorted(traits(world).items()):
                # Runs of before there were looks keep their names.
                if not name.endswith("looks") or value.any():
                    state.update(np.ascontiguousarray(value).tobytes())
            if len(world.shown) > 1:
                state.update(repr(world.shown).encode())
            if world.transition is not None:
                state.update(repr(world.transition.share).encode())
        for number in range(len(world.allocations)):
            for samples in self._holdings.samples(world, number):
                for client in range(world.clients):
                    state.update(samples[client].tobytes())
        state.update(self._shared.tobytes())
        return state.hexdigest()

    def _make_view(self, client: int, server_round: int) -> View:
        world = self.timeline.world(server_round)
        view = self._view_in(world, client)
        now = world.transition
        if now is None:
            return view
        others = traits(now.before)
        own = traits(world).items()
        if all(np.array_equal(of[client], others[name][client]) for name, of in own):
            return view
        earlier = self._view_in(now.before, client)
        mix = partial(self._mix, now.share)
        return replace(
            view,
            train_indices=mix(0, view.train_indices, earlier.train_indices),
            test_indices=mix(1, view.test_indices, earlier.test_indices),
            held_out=mix(0, view.held_out, earlier.held_out),
            earlier=earlier,
            late=self._points[1] >= now.share,
        )

    def _mix(
        self, share: float, part: int, after: IntArray, before: IntArray
    ) -> IntArray:
        """Return indices of what a gradual change has reached, and of what it has not.

        Both count through the pool once for each of ``turns``, those of the latter
        after those of the former.
        """
        points = self._points[part]
        size = len(points)
        after = after[points[after % size] < share]
        before = before[points[before % size] >= share]
        return np.concatenate([after, before + size * len(self._partition.turns)])

    @cached_property
    def _points(self) -> list[FloatArray]:
        """The share of a gradual change that reaches each sample of the two pools."""
        return [
            generator(self._seed, "gradual", part).random(len(pool.labels))
            for part, pool in enumerate(self._pools)
        ]

    def _view_in(self, world: World, client: int) -> View:
        train, test = (self._indices(world, client, part) for part in (0, 1))
        if len(self._shared):
            labels = self._pools[0].labels[self._shared]
            arrived = self._shared[world.visible[client][labels]]
            train = np.concatenate([train, arrived])
        turns = self._partition.turns
        if len(turns) > 1:
            train = np.sort(train)
        held_out = train[:0]
        if self._partition.validation:
            chosen = self._held_out[train % len(self._held_out)]
            held_out = train[chosen]
            train = train[~chosen]
        looks = world.looks[client]
        test_looks = world.test_looks[client]
        return View(
            *self._pools,
            train,
            test,
            degrees=float(world.degrees[client]),
            relabel=world.relabel[client],
            alike=float(world.alike[client]),
            turns=turns,
            tests=self._partition.tests,
            looks=looks if looks.any() else None,
            test_looks=test_looks if test_looks.any() else None,
            shown=world.shown,
            held_out=held_out,
        )

    def _indices(self, world: World, client: int, part: int) -> IntArray:
        """Collect a client's samples of one pool, label by label if it must be."""
        allocations = world.allocation[client]
        sources = world.source[client]
        visible = world.visible[client]
        pool = self._pools[part]
        parts = []
        since = float(world.since[client])
        until = float(world.until[client])
        order = int(world.order[client])
        # At random only training samples arrive.
        streaming = (since, until) != (0, 1) and (part == 0 or order != AT_RANDOM)
        origins = zip(allocations.tolist(), sources.tolist(), strict=True)
        for number, source in sorted(set(origins)):
            hand = self._holdings.samples(world, number)[part][source]
            if streaming:
                place = self._places(order, part, number, source, hand)
                hand = hand[(since <= place) & (place < until)]
            wanted = visible & (allocations == number) & (sources == source)
            parts.append(hand if wanted.all() else hand[wanted[pool.labels_at(hand)]])
        return parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))

    def _places(
        self, order: int, part: int, number: int, source: int, hand: IntArray
    ) -> FloatArray:
        """Return where in its stream each sample of a hand lies, from 0 to below 1."""
        if order == AT_RANDOM:
            rng = generator(self._seed, f"release/{number}", 0, source)
            return rng.permutation(len(hand)) / len(hand)
        places = self._moments[part][hand % len(self._pools[part].labels)]
        if order == BY_RANK:
            places = places.argsort(kind="stable").argsort() / len(hand)
        return places

    @cached_property
    def _moments(self) -> list[FloatArray]:
        """When each sample of the two pools was taken, from 0 to below 1."""
        times = [pool.times for pool in self._pools if pool.times is not None]
        every = np.concatenate([*times, np.zeros(0, np.int64)])
        first = int(every.min(initial=2**63 - 1))
        last = int(every.max(initial=-(2**63)))
        if first >= last or len(times) < len(self._pools):
            one = f"; here all have the time {first}" if first == last else ""
            one = said_of_one(self._pools, "time") or one
            raise ConfigError(
                "drift.order=time and drift.order=own need a dataset that knows when "
                f"its samples were taken{one}; use dataset=fmow, cityscapes or waymo, "
                "another dataset.time of a table, or another drift"
            )
        # Between two int64 fits into uint64 alone; a float rounds what is next to 1.
        passed = (each.astype(np.uint64) - np.uint64(first % 2**64) for each in times)
        below = np.nextafter(1, 0)
        return [np.minimum(each / float(last + 1 - first), below) for each in passed]

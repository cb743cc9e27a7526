"""The partition that a dataset brings with it: each sample has an owner."""

from __future__ import annotations

from typing import ClassVar

from cfl_flower.data.reading.pool import said_of_one
from cfl_flower.data.worlds.allocation import SamplePair, samples_of_owners
from cfl_flower.data.worlds.partition import DEALT, Known, Partition, Pools
from cfl_flower.data.worlds.world import Allocation, Layout
from cfl_flower.errors import ConfigError
from cfl_flower.seeding import generator
from cfl_flower.settings import require, settings


@settings("partition")
class Natural(Partition):
    """A client is an owner that the dataset knows: a writer, a user, a camera, a zone.

    Fewer clients than owners are drawn from them, and the others come after: whoever is
    a client keeps its number when there are more.
    """

    unused: ClassVar[tuple[str, ...]] = (*DEALT, "samples", "test_samples")
    """Inherited settings without effect, which are refused."""

    def layout(self, clients: int, classes: int, known: Known, seed: int) -> Layout:
        """Return the owners' only layout, or raise `ConfigError` for another one."""
        if known:
            fault = "partition=natural cannot be allocated anew by drift=regroup"
            raise ConfigError(f"{fault}; use drift=none or another one")
        return super().layout(clients, classes, known, seed)

    def allocate_samples(
        self, pools: Pools, allocation: Allocation, seed: int, first: SamplePair | None
    ) -> SamplePair:
        """Return the indices of each owner's samples.

        Raises `ConfigError` if the dataset knows no owners, or fewer than clients.
        """
        owners = [pool.owners for pool in pools if pool.owners is not None]
        if len(owners) < len(pools):
            raise ConfigError(
                "partition=natural needs a dataset that knows whose samples are whose"
                f"{said_of_one(pools, 'owner')}; use another partition"
            )
        clients = len(allocation.takers)
        count = max(int(owner.max(initial=-1)) for owner in owners) + 1
        allowed = f"at most the {count} owners of the dataset"
        require(clients <= count, "clients", clients, allowed)
        # In the order of the draw: sorted, a larger number would renumber everyone, and
        # clients that are asked about after a run would be others.
        chosen = generator(seed, "owners").permutation(count)[:clients]
        train, test = (samples_of_owners(owner, chosen) for owner in owners)
        return train, test

from __future__ import annotations

import numpy as np

from cfl_flower.data.worlds.world import (
    Layout,
    World,
    allocate,
    first_world,
    times_allocated,
)


def test_a_client_counts_the_allocations_that_it_took_part_in_alone() -> None:
    layout = Layout(np.ones((3, 2)), np.zeros(3, np.int64))
    copies = np.array([2, 0, 1])
    world: World = first_world(layout, copies=copies)
    assert times_allocated([]) == 0
    for takers in ([1, 0, 0], [1, 1, 0], [0, 0, 1]):
        world = allocate(world, layout, np.array(takers, bool))
    found = [each.draws.tolist() for each in world.allocations]
    assert found == [[0, 0, 0], [1, 1, 1], [2, 1, 1], [3, 2, 1]]
    assert [each.number for each in world.allocations] == [0, 1, 2, 3]
    assert all(np.array_equal(each.copies, copies) for each in world.allocations)
    assert world.allocation[:, 0].tolist() == [2, 2, 3]

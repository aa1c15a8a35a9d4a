"""Whatever order things happen in: invariants hold, nothing is lost, leaked, or run too often."""

from __future__ import annotations

import pytest

from tests.unit.pool.state_world import World


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_or_leaked_whatever_dies(seed: int) -> None:
    world = World(seed, hosts=1 + seed % 3)
    for _ in range(400):
        world.step()
    world.drain()

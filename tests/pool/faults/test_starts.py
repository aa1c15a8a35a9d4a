"""Workers that can't be started: those who wait for one are told, and the pool gets over it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fray.errors import WorkerStartError
from fray.job import JobContext
from fray.runtime.pool.host.processes import children
from fray.runtime.pool.transport.addresses import Address
from tests.pool.chaos.inspection import nanny_of, pool_of
from tests.pool.driver.processes import kill

PATIENCE = 60.0


def test_a_task_for_which_no_worker_can_be_started_fails_and_later_ones_run(
    make_pool: Callable[..., JobContext],
) -> None:
    ctx = make_pool(2)
    assert ctx.get(ctx.run(pow, 3, 2), timeout=PATIENCE) == 9
    pool = pool_of(ctx)
    # As a cleaner of temporary directories would: those who are connected don't notice.
    socket = Path(Address.parse(pool._config.head).path)
    away = socket.rename(socket.with_suffix(".away"))
    kill(children(nanny_of(pool)))
    with pytest.raises(WorkerStartError, match=r"couldn.t connect to the head"):
        ctx.get(ctx.run(pow, 2, 2), timeout=PATIENCE)
    away.rename(socket)
    assert ctx.get(ctx.run(pow, 4, 2), timeout=PATIENCE) == 16

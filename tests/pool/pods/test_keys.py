"""The key of a namespace is replaced under a running attempt: no call is lost, and who comes later joins."""

from __future__ import annotations

import os
from pathlib import Path

from tests.pool.hosts.pools import PATIENCE, wait_until
from tests.pool.pods.attempt import running_attempt
from tests.pool.transport.mounted_secret import MountedSecret, rotated

LARGE = 1 << 20


def test_a_key_that_is_replaced_costs_no_call(tmp_path: Path) -> None:
    states = rotated()
    mounted = MountedSecret(tmp_path / "auth", states[0])
    with running_attempt(mounted.directory, tmp_path) as attempt:
        attempt.show_rank_0()
        attempt.start_head()
        attempt.start_worker(1)
        context = attempt.join()
        for state in states[1:]:
            mounted.show(state)
            value = context.put(os.urandom(LARGE))  # the worker fetches it by a connection of its own
            made = context.run(bytes, LARGE)  # and so does this process
            assert context.get(context.run(len, value), timeout=PATIENCE) == LARGE
            assert len(context.get(made, timeout=PATIENCE)) == LARGE
        attempt.start_worker(2)
        wait_until(lambda: attempt.ask(2) == 200)
        stats = context.stats()
        assert (stats.hosts, stats.workers_lost, stats.failed) == (3, 0, 0)

"""The head of a job with `maxReplicas` asks for workers when there is work, and gives idle ones back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fray.errors import UnschedulableError
from fray.job.options import TaskOptions
from tests.pool.hosts.pools import PATIENCE, wait_until
from tests.pool.pods.attempt import Attempt


def wait_for(go_on: str) -> bool:
    """Return once somebody says so."""
    while not Path(go_on).exists():
        time.sleep(0.01)
    return True


def test_workers_come_with_work_and_go_without(attempt: Attempt, tmp_path: Path) -> None:
    attempt.show_rank_0()
    attempt.start_head(
        FRAY_WORKERS_MAX="2", FRAY_WORKERS_MIN="0", FRAY_WORKERS_IDLE_SECONDS="0", FRAY_WORKERS_SHAPE="CPU=2"
    )
    context = attempt.join()
    go_on = tmp_path / "go_on"
    results = [context.run(wait_for, str(go_on)) for _ in range(3)]
    wait_until(lambda: attempt.api.scale == 2)
    workers = [attempt.start_worker(pod) for pod in (1, 2)]
    go_on.touch()
    assert context.get(results, timeout=PATIENCE) == [True] * 3
    assert [worker.wait(PATIENCE) for worker in workers] == [0, 0]
    assert attempt.api.scale == 0


def test_what_no_worker_can_ever_hold_is_refused_and_the_rest_waits_for_workers(attempt: Attempt) -> None:
    attempt.show_rank_0()
    attempt.start_head(FRAY_WORKERS_MAX="1", FRAY_WORKERS_IDLE_SECONDS="600", FRAY_WORKERS_SHAPE="CPU=2")
    context = attempt.join()
    large, fits = TaskOptions(resources={"CPU": 3}), TaskOptions(resources={"CPU": 2, "memory": 1e6})
    with pytest.raises(UnschedulableError, match=r"CPU: 3.*CPU: 2"):
        context.get(context.run(abs, -1, options=large), timeout=PATIENCE)
    waits = context.run(abs, -2, options=fits)
    wait_until(lambda: attempt.api.scale == 1)
    assert "CPU" in " ".join(context.stats().waits)
    attempt.start_worker(1)
    assert context.get(waits, timeout=PATIENCE) == 2

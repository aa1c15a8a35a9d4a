"""With `maxReplicas` the head asks for workers; without it users do, and the head chooses who goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fray.errors import UnschedulableError
from fray.job.options import TaskOptions
from tests.pool.hosts.pools import PATIENCE, wait_until
from tests.pool.pods.attempt import KEEP_BUSY, NESTED, Attempt, read_line


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


def run_noted(runs: str, go_on: str) -> bool:
    """Say where it runs, and return once somebody says so."""
    Path(runs).write_text(os.environ["FRAY_POOL_OBJECTS"])
    return wait_for(go_on)


def test_of_workers_that_users_want_no_more_an_idle_one_goes_wherever_it_is(
    attempt: Attempt, tmp_path: Path
) -> None:
    attempt.show_rank_0()
    attempt.api.set_scale(3)
    attempt.start_head(FRAY_WORKERS_MIN="0")
    context = attempt.join()
    workers = {pod: attempt.start_worker(pod, FRAY_WORKERS_SHAPE="CPU=1") for pod in (1, 2, 3)}
    wait_until(lambda: all(attempt.ask(pod) == 200 for pod in workers))
    runs, go_on = tmp_path / "runs", tmp_path / "go_on"
    held = context.run(run_noted, str(runs), str(go_on))
    wait_until(lambda: runs.exists() and runs.read_text() != "")
    (busy,) = [pod for pod in workers if f":{attempt.address(pod)}:" in runs.read_text()]
    attempt.api.set_scale(1)
    assert [worker.wait(PATIENCE) for pod, worker in workers.items() if pod != busy] == [0, 0]
    assert workers[busy].poll() is None
    attempt.api.set_scale(0)
    go_on.touch()
    assert context.get(held, timeout=PATIENCE)
    assert workers[busy].wait(PATIENCE) == 0
    assert attempt.api.scales == [3, 1, 0], "the head writes none"


def test_where_all_are_at_work_one_goes_once_its_tasks_have_ended(attempt: Attempt, tmp_path: Path) -> None:
    attempt.show_rank_0()
    attempt.api.set_scale(2)
    attempt.start_head(FRAY_WORKERS_MIN="0")
    workers = [attempt.start_worker(pod, FRAY_WORKERS_SHAPE="CPU=1") for pod in (1, 2)]
    wait_until(lambda: all(attempt.ask(pod) == 200 for pod in (1, 2)))
    runs, stop = tmp_path / "runs", tmp_path / "stop"
    program = attempt.start_rank(1, KEEP_BUSY.format(runs=str(runs), stop=str(stop)))
    wait_until(lambda: runs.exists() and runs.stat().st_size > 8)
    attempt.api.set_scale(1)
    wait_until(lambda: any(worker.poll() is not None for worker in workers))
    assert sorted(str(worker.poll()) for worker in workers) == ["0", "None"]
    stop.touch()
    assert read_line(program) == "True\n"


def test_a_worker_that_waits_for_a_child_runs_it_once_it_is_wanted_again(
    attempt: Attempt, tmp_path: Path
) -> None:
    """No other worker would come: its pod is the one that the job has."""
    attempt.show_rank_0()
    attempt.api.set_scale(1)
    attempt.start_head(FRAY_WORKERS_MIN="0")
    worker = attempt.start_worker(1, FRAY_WORKERS_SHAPE="CPU=1")
    begun, go = tmp_path / "begun", tmp_path / "go"
    program = attempt.start_rank(1, NESTED.format(begun=str(begun), go=str(go)))
    wait_until(begun.exists)
    attempt.api.set_scale_and_await(0)
    go.touch()
    attempt.api.set_scale_and_await(1)
    assert read_line(program) == "42\n"
    attempt.api.set_scale(0)
    assert worker.wait(PATIENCE) == 0


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

"""Workers that are asked to go: what they run ends or runs elsewhere, and what they have stays."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from fray.job import TaskOptions
from tests.pool.hosts.pools import PATIENCE, wait_until
from tests.pool.pods.attempt import Attempt

LARGE = 1 << 20


def wait_for(begun: str, go_on: str) -> str:
    """Say that it runs, and return what it finds once somebody says so."""
    Path(begun).touch()
    while not (Path(go_on).exists() and (said := Path(go_on).read_text())):  # there before it is written
        time.sleep(0.01)
    return said


def test_a_worker_that_goes_ends_its_tasks_and_leaves_its_values(attempt: Attempt, tmp_path: Path) -> None:
    attempt.show_rank_0()
    attempt.start_head()
    leaving = attempt.start_worker(1, TEST_DRAIN_SECONDS=str(PATIENCE))
    wait_until(lambda: attempt.ask(1) == 200)
    context = attempt.join()
    made = context.run(bytes, LARGE, options=TaskOptions(retries=0))
    context.wait([made], timeout=PATIENCE)
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"
    result = context.run(wait_for, str(begun), str(go_on), options=TaskOptions(retries=0))
    wait_until(begun.exists)
    leaving.send_signal(signal.SIGTERM)
    wait_until(lambda: attempt.ask(1) == 503)
    go_on.write_text("went on")
    assert context.get(result, timeout=PATIENCE) == "went on"
    assert leaving.wait(PATIENCE) == 0
    # It can't be made again, and its worker has gone.
    assert len(context.get(made, timeout=PATIENCE)) == LARGE
    attempt.start_worker(2)
    assert context.get(context.run(len, made), timeout=PATIENCE) == LARGE


def test_a_task_that_takes_too_long_runs_again_elsewhere(attempt: Attempt, tmp_path: Path) -> None:
    attempt.show_rank_0()
    attempt.start_head()
    leaving = attempt.start_worker(1, TEST_DRAIN_SECONDS="0.5")
    wait_until(lambda: attempt.ask(1) == 200)
    context = attempt.join()
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"
    result = context.run(wait_for, str(begun), str(go_on), options=TaskOptions(retries=1))
    wait_until(begun.exists)
    leaving.send_signal(signal.SIGTERM)
    assert leaving.wait(PATIENCE) == 0
    go_on.write_text("went on")
    attempt.start_worker(2)
    assert context.get(result, timeout=PATIENCE) == "went on"


@pytest.mark.parametrize("marked", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"uid": "of-the-next"}])
def test_a_worker_whose_sigterm_came_before_its_handler_takes_no_task(
    attempt: Attempt, marked: dict[str, str]
) -> None:
    """The kernel drops the signal for the first process of a container, and its kubelet sends no other."""
    attempt.show_rank_0()
    attempt.start_head()
    attempt.api.show_worker("train-1", **{"uid": "1", **marked})
    leaving = attempt.start_worker(1, FRAY_POD_NAME="train-1", FRAY_POD_UID="1")
    assert leaving.wait(PATIENCE) == 0


def test_a_worker_whose_pod_is_to_stay_joins(attempt: Attempt) -> None:
    attempt.show_rank_0()
    attempt.start_head()
    attempt.api.show_worker("train-1", uid="1")
    attempt.start_worker(1, FRAY_POD_NAME="train-1", FRAY_POD_UID="1")
    assert attempt.join().run(pow, 12, 2).result(PATIENCE) == 144

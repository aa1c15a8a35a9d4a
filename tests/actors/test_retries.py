"""Calls that were lost with their member are made again where that was said to do no harm, and only there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fray.errors import ActorDiedError, ActorUnavailableError, TaskCancelledError, TaskTimeoutError
from fray.job import ActorOptions, JobContext
from tests.actors import programs
from tests.actors.cluster import Cluster
from tests.pool.hosts.pools import PATIENCE, wait_until

LOST = (ActorDiedError, ActorUnavailableError)


def test_calls_are_made_again_in_their_order_where_the_creator_has_said_so(
    cluster: Cluster, context: JobContext, tmp_path: Path
) -> None:
    counter = context.create_actor(programs.Counter, name="counter", max_task_retries=1)
    assert cluster.actor("counter")["spec"]["maxTaskRetries"] == 1
    cluster.start_pod("counter")
    first = context.get(counter.pid.remote(), timeout=PATIENCE)
    begun = tmp_path / "begun"
    blocked = counter.block_once.remote(str(begun))
    notes = [counter.note.remote(number) for number in range(5)]
    cancelled = counter.note.remote(5)
    once = counter.add.options(max_task_retries=0).remote()
    wait_until(begun.exists)
    context.cancel(cancelled)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(LOST):
        context.get(once, timeout=PATIENCE)
    later = context.get(blocked, timeout=PATIENCE)
    assert later != first
    assert context.get(notes, timeout=PATIENCE) == [None] * 5
    assert context.get(counter.noted.remote(), timeout=PATIENCE) == [0, 1, 2, 3, 4]
    with pytest.raises(TaskCancelledError):
        context.get(cancelled, timeout=PATIENCE)
    # A handle that was looked up knows what the creator has said.
    assert context.get(context.get_actor("counter").pid.remote(), timeout=PATIENCE) == later


def test_one_call_may_be_made_again_and_the_others_keep_to_their_incarnation(
    cluster: Cluster, context: JobContext, tmp_path: Path
) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    cluster.start_pod("counter")
    first = context.get(counter.pid.remote(), timeout=PATIENCE)
    begun, lost = tmp_path / "begun", tmp_path / "lost"
    repeated = counter.block_once.options(max_task_retries=-1).remote(str(begun))
    plain = counter.add.remote()
    wait_until(begun.exists)
    os.kill(first, signal.SIGKILL)
    with pytest.raises(LOST):
        context.get(plain, timeout=PATIENCE)
    second = context.get(repeated, timeout=PATIENCE)
    assert second != first
    with pytest.raises(LOST):
        context.get(counter.add.remote(), timeout=PATIENCE)

    # No more often than it may.
    with pytest.raises(LOST):
        context.get(counter.end.options(max_task_retries=1).remote(), timeout=PATIENCE)
    wait_until(lambda: cluster.record("counter")["startNumber"] == "4")
    # While it is started again a call waits no longer than it may take, and ends with its actor.
    once_more = counter.block_once.options(max_task_retries=1)
    waiting = once_more.remote(str(lost))
    wait_until(lost.exists)
    context.kill(counter)
    cluster.pods[-1].process.terminate()
    with pytest.raises(ActorDiedError, match="deleted"):
        context.get(waiting, timeout=PATIENCE)


def test_a_call_that_waits_for_a_restart_ends_when_its_time_is_up(
    cluster: Cluster, context: JobContext, tmp_path: Path
) -> None:
    counter = context.create_actor(programs.Counter, name="counter", max_task_retries=-1)
    pod = cluster.start_pod("counter")
    context.get(counter.pid.remote(), timeout=PATIENCE)
    begun = tmp_path / "begun"
    blocked = counter.block_once.options(timeout=PATIENCE / 4).remote(str(begun))
    wait_until(begun.exists)
    pod.kill()  # and no other one comes
    with pytest.raises(TaskTimeoutError):
        context.get(blocked, timeout=PATIENCE)


def test_a_constructor_that_fails_is_waited_for_as_often_as_calls_are_made_again(
    cluster: Cluster, context: JobContext, tmp_path: Path
) -> None:
    for name, retries in (("patient", 2), ("hasty", 1)):
        tries = str(tmp_path / name)
        options = ActorOptions(max_task_retries=retries, max_restarts=-1)
        late = context.create_actor(programs.Late, tries, name=name, options=options)
        cluster.start_pod(name)
        if name == "patient":
            assert context.get(late.call.remote(), timeout=PATIENCE) == "called"
            continue
        with pytest.raises(ActorDiedError, match="no such table yet"):
            late.call.remote()
        assert len(Path(tries).read_text()) >= 2

"""What is learnt of a member's end a moment after its calls have failed: later errors tell it, too."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fray.errors import ActorDiedError, ActorUnavailableError, FrayError
from fray.job import ActorHandle, JobContext, member_engine
from fray.kube.resources import FRAYACTORS
from tests.actors import programs
from tests.actors.cluster import Cluster, Pod
from tests.pool.driver.processes import descendants
from tests.pool.hosts.pools import PATIENCE, wait_until


def error_of(context: JobContext, ref: Any) -> FrayError:
    """Return what a call that was lost raises now."""
    with pytest.raises((ActorDiedError, ActorUnavailableError)) as caught:
        context.get(ref, timeout=PATIENCE)
    return caught.value


def start_counter(cluster: Cluster, context: JobContext) -> tuple[ActorHandle[programs.Counter], Pod]:
    """Return a counter that has answered a call, and its pod."""
    counter = context.create_actor(programs.Counter, name="counter")
    pod = cluster.start_pod("counter")
    context.get(counter.pid.remote(), timeout=PATIENCE)
    return counter, pod


def test_a_call_that_was_lost_at_once_tells_later_what_the_record_has_by_then(
    cluster: Cluster, context: JobContext
) -> None:
    counter, pod = start_counter(cluster, context)
    blocked = counter.block.remote()
    (head,) = [
        pid
        for pid in descendants(pod.process.pid)
        if b"pool.head.__main__" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(pod.process.pid, signal.SIGSTOP)  # it can tell nothing yet
    os.kill(head, signal.SIGKILL)
    assert str(error_of(context, blocked)).startswith(
        "actor 'counter' can't be reached: the connection to it"
    )
    os.kill(pod.process.pid, signal.SIGCONT)
    wait_until(lambda: "its server was killed by signal 9 (SIGKILL)" in str(error_of(context, blocked)))
    assert isinstance(error_of(context, blocked), ActorDiedError)
    with pytest.raises(ActorDiedError, match="its server was killed by signal 9"):
        counter.add.remote()


def test_a_member_that_is_lost_has_the_story_of_its_pod_once_the_operator_knows(
    cluster: Cluster, context: JobContext
) -> None:
    counter, pod = start_counter(cluster, context)
    blocked = counter.block.remote()
    pod.kill()
    assert error_of(context, blocked).story == ()  # type: ignore[attr-defined]
    actor = cluster.actor("counter")
    message = "pod counter-0 doesn't end, so its node n1 seems not to answer"
    error = {"type": "ValueError", "message": "no such table", "traceback": "Traceback:\n  in __init__"}
    actor["status"] = {"members": [{"index": 0, "message": message, "lastError": error}]}
    cluster.api.store(FRAYACTORS, actor)
    told = f"\n  {message}\n  ValueError: no such table\n  Traceback:\n    in __init__\n"
    wait_until(lambda: told in str(error_of(context, blocked)))
    with pytest.raises(ActorUnavailableError) as caught:
        counter.add.remote()
    assert told in str(caught.value)


def test_many_lost_calls_look_for_the_story_together(
    cluster: Cluster, context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_engine, "LOOK_SECONDS", float(PATIENCE))
    counter, pod = start_counter(cluster, context)
    lost = [counter.block.remote() for _ in range(500)]
    pod.kill()
    error_of(context, lost[0])
    known = len(cluster.api.calls)
    for ref in lost:
        error_of(context, ref)
    assert len(cluster.api.calls) - known < len(lost) / 10

"""Actors that a process hosts: what others find, who runs their calls, and how they end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fray.errors import (
    ActorDiedError,
    ActorExistsError,
    ActorNotFoundError,
    ActorUnavailableError,
    InvalidOptionError,
    UnsupportedFeatureError,
)
from fray.job import ActorHandle, ActorOptions, JobContext, current_actor, host_actor, hosted_actors
from fray.kube.resources import CONFIG_MAPS, FRAYACTORS
from fray.runtime.actors.identity import build_actor_name
from fray.testing import Call
from tests.actors import programs
from tests.actors.cluster import Cluster, await_no_connection, hosting
from tests.pool.hosts.pools import PATIENCE, wait_until


class Scribe:
    """Knows which actor it is, and can end itself."""

    def __init__(self, number: int) -> None:
        self.number, self.thread, self._me = number, threading.get_ident(), current_actor()

    def place(self) -> tuple[str, int, int]:
        return self._me.group_name, self._me.index, self.number

    def is_in_its_thread(self) -> bool:
        return threading.get_ident() == self.thread

    def myself(self) -> ActorHandle[Scribe]:
        return self._me.handle

    def retire(self) -> str:
        self._me.shutdown_event.set()
        return "bye"

    def fail(self) -> None:
        self._me.fail(BufferError("out of ink"))


def test_an_object_of_this_process_is_called_by_its_name(cluster: Cluster, context: JobContext) -> None:
    counter = programs.Counter(5)
    hosted = host_actor(counter, name="lab/counter")
    found = context.get_actor("lab/counter")
    assert context.get(found.add.remote(2), timeout=PATIENCE) == 7
    assert context.get(hosted.handle.add.remote(), timeout=PATIENCE) == 8
    assert (counter.value, context.get(found.pid.remote(), timeout=PATIENCE)) == (8, os.getpid())
    assert context.get(list(found.items.remote(3)), timeout=PATIENCE) == [0, 1, 2]
    assert context.get(found.give.remote(1_000_000), timeout=PATIENCE) == bytes(1_000_000)
    assert context.get(found.size.remote(bytes(1_000_000)), timeout=PATIENCE) == 1_000_000
    with pytest.raises(KeyError, match="no such lesson"):
        context.get(found.fail.remote(), timeout=PATIENCE)
    assert cluster.actor("lab/counter")["spec"]["entrypoint"]["hosted"]["podUid"] == "pod-1"

    running = found.block.remote()
    hosted.shutdown()
    hosted.shutdown()
    with pytest.raises(ActorDiedError, match="deleted"):
        context.get(running, timeout=PATIENCE)
    await_no_connection()
    with pytest.raises(ActorDiedError, match="deleted"):
        found.add.remote()
    with pytest.raises(ActorNotFoundError):
        context.get_actor("lab/counter")
    counter.release()
    assert counter.value == 8


def test_nothing_is_left_in_a_process_of_what_it_has_hosted_and_called(
    cluster: Cluster, context: JobContext
) -> None:
    opened = []
    for round_ in range(3):
        counter = programs.Counter()
        hosted = host_actor(counter, name=f"counter-{round_}")
        assert context.get(hosted.handle.add.remote(), timeout=PATIENCE) == 1
        hosted.shutdown()
        await_no_connection()
        object_ = weakref.ref(counter)
        del counter, hosted
        wait_until(lambda gone=object_: gc.collect() >= 0 and gone() is None)
        wait_until(lambda: not any(thread.name == "fray-Counter" for thread in threading.enumerate()))
        opened.append(_count_directories())
    # The connection to one is let go of when there is another one.
    wait_until(lambda: _count_directories() <= opened[0])


def _count_directories() -> int:
    """Return how many directories of objects this process has open."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found += f"fray-{os.geteuid()}" in path.readlink().parts
    return found


def test_a_class_is_constructed_where_its_calls_run_and_knows_its_name(
    cluster: Cluster, context: JobContext
) -> None:
    hosted = host_actor(Scribe, number=3, name="scribe")
    found = context.get_actor("scribe")
    assert context.get(found.place.remote(), timeout=PATIENCE) == ("scribe", 0, 3)
    assert context.get(found.is_in_its_thread.remote(), timeout=PATIENCE)
    assert context.get(found.myself.remote(), timeout=PATIENCE) == hosted.handle
    with pytest.raises(AttributeError, match="has no method 'misspelt'"):
        hosted.handle.misspelt  # noqa: B018
    assert cluster.record("scribe")["ready"] == "true"
    hosted.shutdown()


@pytest.mark.parametrize(("method", "told"), [("retire", "ended itself"), ("fail", "out of ink")])
def test_an_actor_that_ends_itself_is_gone_with_its_name(
    cluster: Cluster, context: JobContext, method: str, told: str
) -> None:
    scribe = host_actor(Scribe, 1, name="scribe").handle
    context.get(scribe.place.remote(), timeout=PATIENCE)
    ref = getattr(scribe, method).remote()
    if method == "fail":
        with pytest.raises(ActorDiedError, match=told):
            context.get(ref, timeout=PATIENCE)
    else:
        assert context.get(ref, timeout=PATIENCE) == "bye"
    wait_until(lambda: not cluster.api.all(FRAYACTORS))
    with pytest.raises(ActorDiedError):
        context.get(scribe.place.remote(), timeout=PATIENCE)
    host_actor(Scribe, 2, name="scribe").shutdown()


def test_a_constructor_that_fails_leaves_the_name_free(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="no such table"):
        host_actor(programs.Broken, name="table")
    assert cluster.api.all(FRAYACTORS) == []
    host_actor(programs.Counter, name="table").shutdown()


def test_a_name_is_one_actors_whoever_has_it(cluster: Cluster, context: JobContext) -> None:
    hosted = host_actor(programs.Counter, name="counter")
    with pytest.raises(ActorExistsError):
        host_actor(programs.Counter, name="counter")
    with pytest.raises(ActorExistsError):
        context.create_actor(programs.Counter, name="counter")
    same = context.create_actor(programs.Counter, name="counter", get_if_exists=True)
    assert same == hosted.handle
    hosted.shutdown()
    context.create_actor(programs.Counter, name="counter")
    with pytest.raises(ActorExistsError):
        host_actor(programs.Counter, name="counter")
    assert len(cluster.api.all(FRAYACTORS)) == 1


def test_calls_run_one_at_a_time_or_as_many_as_its_options_say(cluster: Cluster, context: JobContext) -> None:
    one = host_actor(programs.Counter, name="one")
    for number in range(20):
        one.handle.note.remote(number)
    assert context.get(one.handle.noted.remote(), timeout=PATIENCE) == list(range(20))
    several = host_actor(programs.Counter(), name="several", options=ActorOptions(max_concurrency=2))
    blocked = several.handle.block.remote()
    context.get(several.handle.release.remote(), timeout=PATIENCE)
    context.get(blocked, timeout=PATIENCE)
    meeting = host_actor(programs.Meeting, name="meeting")
    assert context.get([meeting.handle.meet.remote(3) for _ in range(3)], timeout=PATIENCE) == [3, 3, 3]
    for each in (one, several, meeting):
        each.shutdown()


def test_it_ends_when_its_object_is_deleted_by_others(cluster: Cluster, context: JobContext) -> None:
    hosted = host_actor(programs.Counter, name="counter")
    handle = context.get_actor("counter")
    running = handle.block.remote()
    context.kill(handle)
    with pytest.raises(ActorDiedError, match="deleted"):
        context.get(running, timeout=PATIENCE)
    hosted.shutdown()


def test_a_host_that_is_killed_is_told_to_callers_and_nobody_waits_for_another(
    cluster: Cluster, context: JobContext
) -> None:
    with hosting(cluster) as process:
        handle = context.get_actor("counter")
        assert context.get(handle.add.remote(), timeout=PATIENCE) == 6
        assert context.get(handle.pid.remote(), timeout=PATIENCE) == process.pid
        running = handle.block.remote()
        process.send_signal(signal.SIGKILL)
        # As its server ends with it, that one may have the time to say so.
        with pytest.raises((ActorDiedError, ActorUnavailableError)):
            context.get(running, timeout=PATIENCE)
        process.wait(PATIENCE)
        await_no_connection()
        with pytest.raises((ActorDiedError, ActorUnavailableError)):
            context.get(context.get_actor("counter").add.remote(), timeout=PATIENCE)
        # As the operator tells it, once the pod has ended.
        end = {"type": "Finished", "status": "True", "reason": "HostEnded", "message": "its pod has ended"}
        name = cluster.actor("counter")["metadata"]["name"]
        cluster.api.set_status(name, resource=FRAYACTORS, conditions=[end])
        with pytest.raises(ActorDiedError, match="its pod has ended"):
            context.get_actor("counter").add.remote()
    with hosting(cluster, "pod-3"):
        again = context.get_actor("counter")
        assert context.get(again.add.remote(), timeout=PATIENCE) == 6
        with pytest.raises(ActorDiedError, match="deleted"):
            handle.add.remote()


def test_a_host_that_exits_takes_its_actor_along(cluster: Cluster, context: JobContext) -> None:
    with hosting(cluster) as process:
        handle = context.get_actor("counter")
        context.get(handle.add.remote(), timeout=PATIENCE)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
    await_no_connection()
    with pytest.raises(ActorDiedError, match="deleted"):
        handle.add.remote()
    with pytest.raises(ActorNotFoundError):
        context.get_actor("counter")


def test_a_later_attempt_takes_the_name_and_the_earlier_host_stops_serving(
    cluster: Cluster, context: JobContext
) -> None:
    with hosting(cluster, "pod-2", FRAY_ATTEMPT="1"):
        old = context.get_actor("counter")
        assert context.get(old.add.remote(), timeout=PATIENCE) == 6
        running = old.block.remote()
        with hosting(cluster, "pod-3", FRAY_ATTEMPT="2"):
            with pytest.raises(ActorDiedError, match="deleted"):
                context.get(running, timeout=PATIENCE)
            fresh = context.get_actor("counter")
            assert context.get(fresh.add.remote(), timeout=PATIENCE) == 6
            assert fresh != old


def _leave() -> None:
    """What a fork of a host does: nothing of the actor is its business."""


def test_a_fork_of_the_host_takes_nothing_away(cluster: Cluster, context: JobContext) -> None:
    hosted = host_actor(programs.Counter, name="counter")
    handle: Any = context.get_actor("counter")
    assert context.get(handle.add.remote(), timeout=PATIENCE) == 1
    child = multiprocessing.get_context("fork").Process(target=_leave)
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
    assert context.get(handle.add.remote(), timeout=PATIENCE) == 2
    hosted.shutdown()


def test_it_waits_for_what_an_earlier_actor_of_its_name_has_left(
    cluster: Cluster, context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_actor(programs.Counter, name="counter").shutdown()
    name = f"{build_actor_name(cluster.root_uid, 'counter')}-0"
    left = {"kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [{"uid": "an-earlier-one"}]}}
    cluster.api.store(CONFIG_MAPS, {**left, "data": {}})
    tries: list[Call] = []

    def collect_at_last(call: Call) -> None:
        if (call.method, call.resource) == ("POST", CONFIG_MAPS):
            tries.append(call)
            if len(tries) == 12:  # more than are tried at once
                cluster.api.remove(CONFIG_MAPS, name)

    monkeypatch.setattr(cluster.api, "fault", collect_at_last)
    hosted = host_actor(programs.Counter, 3, name="counter")
    assert len(tries) == 12
    assert context.get(context.get_actor("counter").add.remote(), timeout=PATIENCE) == 4
    hosted.shutdown()


def test_it_waits_for_its_keys(
    cluster: Cluster, context: JobContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, pauses = tmp_path / "keys", []

    def bring_keys(seconds: float) -> None:
        pauses.append(seconds)
        shutil.copytree(cluster.key, tmp_path / "made").rename(keys)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=bring_keys)
    monkeypatch.setattr(hosted_actors, "time", clock)
    monkeypatch.setenv("FRAY_POOL_KEY", str(keys))
    hosted = host_actor(programs.Counter, name="counter")
    assert len(pauses) == 1
    assert context.get(hosted.handle.add.remote(), timeout=PATIENCE) == 1
    hosted.shutdown()


def test_what_can_not_be_hosted_is_said(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOptionError, match="Counter, which is there already and takes no arguments"):
        host_actor(programs.Counter(), 5, name="counter")
    with pytest.raises(InvalidOptionError, match="what others find the actor by"):
        host_actor(programs.Counter, name=None)  # type: ignore[arg-type]
    monkeypatch.delenv("FRAY_POD_UID")
    with pytest.raises(UnsupportedFeatureError) as refused:
        host_actor(programs.Counter, name="counter")
    assert "a job that has a callable or workers" in str(refused.value)

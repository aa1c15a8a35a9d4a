"""What callers learn when an actor's process, its pod or its FrayActor ends, and that none meets another."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from fray.errors import ActorDiedError, ActorUnavailableError, TaskError
from fray.job import JobContext
from fray.kube.errors import ServerError
from fray.kube.resources import CONFIG_MAPS
from fray.runtime.actors import joining
from fray.runtime.pool.host.processes import children
from fray.testing import Call
from tests.actors import programs
from tests.actors.cluster import Cluster, await_no_connection
from tests.pool.clients.pods import running_pods
from tests.pool.driver.processes import descendants, kill
from tests.pool.hosts.pools import PATIENCE, wait_until


def test_a_restart_is_fresh_and_no_call_of_the_old_handle_reaches_it(
    cluster: Cluster, context: JobContext
) -> None:
    counter = context.create_actor(programs.Counter, 1, name="counter")
    pod = cluster.start_pod("counter")
    first = context.get(counter.pid.remote(), timeout=PATIENCE)
    assert context.get(counter.add.remote(), timeout=PATIENCE) == 2

    blocked = counter.block.remote()
    waiting = counter.add.remote()
    os.kill(first, signal.SIGKILL)
    for ref in (blocked, waiting):
        with pytest.raises(ActorDiedError):
            context.get(ref, timeout=PATIENCE)

    wait_until(lambda: cluster.record("counter")["startNumber"] == "2")
    told = json.loads(cluster.record("counter")["lastError"])
    assert (told["type"].rpartition(".")[2], told["traceback"]) == ("ActorDiedError", "")
    assert "signal 9 (SIGKILL)" in told["message"]
    pod.await_ready()
    await_no_connection()
    with pytest.raises(ActorDiedError, match="started anew"):
        context.get(counter.add.remote(), timeout=PATIENCE)
    fresh = context.get_actor("counter")
    assert context.get(fresh.add.remote(), timeout=PATIENCE) == 2
    assert context.get(fresh.pid.remote(), timeout=PATIENCE) != first
    assert cluster.record("counter")["ready"] == "true"


def test_a_member_that_fails_is_started_again_as_often_as_it_may_be(
    cluster: Cluster, context: JobContext, tmp_path: Path
) -> None:
    group = context.create_actor_group(programs.Pupil, tmp_path / "told", name="pupils", count=1)
    cluster.start_pod("pupils", FRAY_ACTOR_MAX_RESTARTS="1")
    (pupil,) = group.handles
    assert context.get(pupil.myself.remote(), timeout=PATIENCE) == pupil
    first = context.get(pupil.pid.remote(), timeout=PATIENCE)
    with pytest.raises(ActorDiedError, match="out of lessons"):
        context.get(pupil.fail.remote(), timeout=PATIENCE)
    again = context.get_actor("pupils-0")
    wait_until(lambda: cluster.record("pupils")["restarts"] == "1")
    assert context.get(again.pid.remote(), timeout=PATIENCE) != first
    again.fail.remote()
    wait_until(lambda: cluster.record("pupils")["exhausted"] == "true")
    told = json.loads(cluster.record("pupils")["lastError"])
    assert (told["type"], told["message"]) == ("BufferError", "out of lessons")
    assert not (tmp_path / "told").exists()


def test_a_pod_that_is_to_end_leaves_its_actor_time_for_that(
    cluster: Cluster, context: JobContext, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    group = context.create_actor_group(programs.Pupil, told, name="pupils", count=1)
    pod = cluster.start_pod("pupils")
    (pupil,) = group.handles
    context.get(pupil.pid.remote(), timeout=PATIENCE)
    pod.process.terminate()
    assert pod.process.wait(PATIENCE) == 0
    assert told.read_text() == "asked to end, and done"
    with pytest.raises((ActorDiedError, ActorUnavailableError)):
        context.get(pupil.pid.remote(), timeout=PATIENCE)


def test_a_process_that_exits_with_0_is_started_again(cluster: Cluster, context: JobContext) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    cluster.start_pod("counter")
    with pytest.raises(ActorDiedError):
        context.get(counter.end.remote(), timeout=PATIENCE)
    wait_until(lambda: cluster.record("counter")["startNumber"] == "2")
    assert context.get(context.get_actor("counter").add.remote(), timeout=PATIENCE) == 1


def test_a_pod_that_vanishes_is_told_and_its_successor_is_another_incarnation(
    cluster: Cluster, context: JobContext
) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    pod = cluster.start_pod("counter")
    assert context.get(counter.add.remote(), timeout=PATIENCE) == 1
    blocked = counter.block.remote()
    assert kill((pod.process.pid, *descendants(pod.process.pid)))
    pod.process.wait(PATIENCE)
    with pytest.raises(ActorUnavailableError):
        context.get(blocked, timeout=PATIENCE)

    cluster.start_pod("counter").await_ready()
    await_no_connection()
    with pytest.raises(ActorDiedError, match="started anew"):
        counter.add.remote()
    assert context.get(context.get_actor("counter").add.remote(), timeout=PATIENCE) == 1


YEAR = 365 * 24 * 3600
WRONG_CLOCK = """
import time
right, right_ns = time.time, time.time_ns
time.time = lambda: right() + {seconds}
time.time_ns = lambda: right_ns() + {seconds} * 10**9
"""


def test_clocks_that_are_wrong_lead_no_call_to_another_incarnation(
    cluster: Cluster, context: JobContext, tmp_path: Path
) -> None:
    context.create_actor(programs.Counter, name="counter")
    earlier = None
    for years in (1, -1, 1):
        packages = tmp_path / f"{years}"
        packages.mkdir(exist_ok=True)
        (packages / "sitecustomize.py").write_text(WRONG_CLOCK.format(seconds=years * YEAR))
        pod = cluster.start_pod("counter", PYTHONPATH=str(packages))
        pod.await_ready()
        if earlier is not None:
            with pytest.raises(ActorDiedError, match="started anew"):
                earlier.add.remote()
        counter = context.get_actor("counter")
        assert context.get(counter.add.remote(), timeout=PATIENCE) == 1
        ahead = context.get(counter.clock.remote(), timeout=PATIENCE) - time.time()
        assert abs(ahead - years * YEAR) < YEAR / 2

        blocked = counter.block.remote()
        pod.kill()
        with pytest.raises(ActorUnavailableError):
            context.get(blocked, timeout=PATIENCE)
        await_no_connection()
        earlier = counter


@pytest.mark.parametrize("listener", ["another actor", "a later pod", "a job's pool"])
def test_no_call_reaches_who_else_has_the_address_by_now(
    cluster: Cluster, context: JobContext, monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    pod = cluster.start_pod("counter")
    assert context.get(counter.add.remote(), timeout=PATIENCE) == 1
    looked_up = context.get_actor("counter")
    record = cluster.api.find(CONFIG_MAPS, f"{cluster.actor('counter')['metadata']['name']}-0")
    assert record is not None
    pod.kill()
    await_no_connection()
    with ExitStack() as stack:
        if listener == "a job's pool":
            stack.enter_context(running_pods(cluster.key, pod.port))
        else:
            label = "counter" if listener == "a later pod" else "other"
            context.create_actor(programs.Counter, name=label, get_if_exists=True)
            cluster.start_pod(label, TEST_PORT=str(pod.port)).await_ready()
        known = cluster.api.find(CONFIG_MAPS, record["metadata"]["name"])
        assert known is not None
        cluster.api.store(CONFIG_MAPS, record)  # what the first pod has told, as a stale answer has it
        monkeypatch.setattr(joining, "REACH_SECONDS", 0.0)
        monkeypatch.setattr(joining, "START_SECONDS", 0.0)
        told = rf"counter.*127\.0\.0\.1:{pod.port} is the head of another pool"
        with pytest.raises(ActorUnavailableError, match=told):
            counter.add.remote()
        with pytest.raises(ActorUnavailableError, match=told):
            looked_up.add.remote()
        with pytest.raises(ActorUnavailableError, match=told):
            counter.add.options(max_task_retries=1).remote()
        cluster.api.store(CONFIG_MAPS, known)
        if listener != "a job's pool":
            assert context.get(context.get_actor(label).add.remote(), timeout=PATIENCE) == 1


def test_who_looks_an_actor_up_that_it_saw_die_waits_for_the_next_start(
    cluster: Cluster, context: JobContext
) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    cluster.start_pod("counter")
    for _ in range(3):
        with pytest.raises(ActorDiedError):
            context.get(context.get_actor("counter").end.remote(), timeout=PATIENCE)
        # Maybe before its record says anything of that end.
        assert context.get(context.get_actor("counter").add.remote(1), timeout=PATIENCE) == 1
    assert context.get_actor("counter") == counter


def test_a_constructor_that_exits_is_told_without_lines_of_frays_own(
    cluster: Cluster, context: JobContext
) -> None:
    leaving = context.create_actor(programs.Leaving, name="leaving")
    cluster.start_pod("leaving")
    with pytest.raises(ActorDiedError, match=r"raised SystemExit\(3\)"):
        leaving.call.remote()
    error = json.loads(cluster.record("leaving")["lastError"])
    assert ("raised SystemExit(3)" in error["message"], error["traceback"]) == (True, "")


def test_a_constructor_that_fails_is_told_to_callers_and_in_the_record(
    cluster: Cluster, context: JobContext
) -> None:
    broken = context.create_actor(programs.Broken, name="broken")
    pod = cluster.start_pod("broken", FRAY_ACTOR_MAX_RESTARTS="1")
    with pytest.raises(ActorDiedError, match="no such table") as caught:
        broken.call.remote()
    assert any("in __init__" in line for line in caught.value.story)
    wait_until(lambda: cluster.record("broken")["exhausted"] == "true")
    assert "no such table" in cluster.record("broken")["lastError"]
    assert not pod.is_ready
    wait_until(lambda: children(pod.process.pid) == [])
    assert (cluster.record("broken")["startNumber"], cluster.record("broken")["restarts"]) == ("2", "1")

    # What was used up in one pod isn't there again in the next one.
    pod.kill()
    later = cluster.start_pod("broken", FRAY_ACTOR_MAX_RESTARTS="1")
    wait_until(lambda: cluster.record("broken")["startNumber"] == "0")
    assert cluster.record("broken")["restarts"] == "1"
    assert not children(later.process.pid)
    with pytest.raises(ActorDiedError, match="as often as it may be"):
        context.get_actor("broken").call.remote()


def test_nobody_is_sent_to_an_incarnation_that_is_over_while_its_processes_end(
    cluster: Cluster, context: JobContext
) -> None:
    parent = context.create_actor(programs.Parent, name="parent")
    cluster.start_pod("parent", FRAY_ACTOR_MAX_RESTARTS="0")
    child = context.get(parent.bear.remote(), timeout=PATIENCE)
    met: list[bool] = []

    def note(call: Call) -> None:
        if (call.method, call.resource) == ("PATCH", CONFIG_MAPS):
            met.append(Path(f"/proc/{child}").exists())

    cluster.api.fault = note
    with pytest.raises(ActorDiedError):
        context.get(parent.end.remote(), timeout=PATIENCE)
    wait_until(lambda: cluster.record("parent")["exhausted"] == "true")
    # Its pod's supervisor says so before it begins to end what the actor has left.
    assert met[0]
    record = cluster.record("parent")
    assert (record["ready"], record["startNumber"], record["restarts"]) == ("false", "1", "0")
    again = context.create_actor(programs.Parent, name="parent", get_if_exists=True)
    cluster.start_pod("parent")
    assert context.get(again.bear.remote(), timeout=PATIENCE) != child


def test_other_handles_of_an_actor_that_was_killed_know_of_it(cluster: Cluster, context: JobContext) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    cluster.start_pod("counter")
    used = context.get_actor("counter")
    assert context.get(used.add.remote(), timeout=PATIENCE) == 1
    again = used.add.options(max_task_retries=1)
    assert context.get(again.remote(), timeout=PATIENCE) == 2
    # By a handle that has called nothing. The actor's pod lives on for now.
    context.kill(context.get_actor("counter"))
    for method in (used.add, again, counter.add):
        with pytest.raises(ActorDiedError, match="deleted"):
            context.get(method.remote(), timeout=PATIENCE)


def test_a_killed_actor_is_gone_and_its_name_is_free(cluster: Cluster, context: JobContext) -> None:
    counter = context.create_actor(programs.Counter, 5, name="counter")
    pod = cluster.start_pod("counter")
    assert context.get(counter.add.remote(), timeout=PATIENCE) == 6
    running = counter.block.remote()
    context.kill(counter)
    pod.process.terminate()
    with pytest.raises(ActorDiedError, match="deleted"):
        context.get(running, timeout=PATIENCE)
    assert pod.process.wait(PATIENCE) == 0
    await_no_connection()
    with pytest.raises(ActorDiedError, match="deleted"):
        counter.add.remote()
    again = context.create_actor(programs.Counter, 1, name="counter")
    cluster.start_pod("counter")
    assert context.get(again.add.remote(), timeout=PATIENCE) == 2


def test_an_outage_of_the_api_server_stops_no_calls(cluster: Cluster, context: JobContext) -> None:
    counter = context.create_actor(programs.Counter, name="counter")
    cluster.start_pod("counter")
    assert context.get(counter.add.remote(), timeout=PATIENCE) == 1
    refused: list[str] = []

    def refuse(call: Call) -> ServerError:
        refused.append(f"{call.method} {call.resource.plural}")
        return ServerError("any", 503, "ServiceUnavailable", "it is down")

    cluster.api.fault = refuse
    assert context.get(counter.add.remote(), timeout=PATIENCE) == 2
    pid = context.get(counter.pid.remote(), timeout=PATIENCE)
    ref = counter.block.remote()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(TaskError):
        context.get(ref, timeout=PATIENCE)
    # Its pod can't tell why it has ended, nor count the next start.
    wait_until(lambda: refused.count("GET configmaps") > 1)
    cluster.api.fault = lambda _: None
    wait_until(lambda: cluster.record("counter")["startNumber"] == "2")
    wait_until(lambda: "SIGKILL" in cluster.record("counter")["lastError"])
    assert context.get(context.get_actor("counter").add.remote(), timeout=PATIENCE) == 1

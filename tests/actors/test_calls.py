"""Calls of a named actor from the process of a job: order, errors, items, large values, several handles."""

from __future__ import annotations

import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fray.errors import ActorNotFoundError, GetTimeoutError, RemoteTracebackError, TaskTimeoutError
from fray.job import JobContext, MemberState
from fray.job.actors import ActorHandle
from fray.runtime.actors.joining import PodReach
from fray.runtime.pool import joined_pool
from fray.runtime.pool.client.backpressure import SubmitLimit
from fray.runtime.pool.transport.keys import TransportKey
from tests.actors import programs
from tests.actors.cluster import Cluster
from tests.pool.hosts.pools import PATIENCE

Counter = ActorHandle[programs.Counter]


@pytest.fixture
def counter(cluster: Cluster, context: JobContext) -> Counter:
    handle = context.create_actor(programs.Counter, 40, name="train/counter")
    cluster.start_pod("train/counter")
    return handle


def test_all_handles_of_a_process_share_one_connection(
    counter: Counter, context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert context.get(counter.add.remote(), timeout=PATIENCE) == 41
    monkeypatch.setattr(PodReach, "join", None)
    found: Counter = context.get_actor("train/counter")
    assert context.get(found.add.remote(), timeout=PATIENCE) == 42


def test_a_call_waits_for_its_actor_no_longer_than_its_timeout(cluster: Cluster, context: JobContext) -> None:
    made: Counter = context.create_actor(programs.Counter, name="counter")  # it has no pod yet
    found: Counter = context.get_actor("counter")
    told = r"'counter\.add' ran longer than its limit of 0\.2 s\n.*actor 'counter' .* it isn't ready"
    for handle in (made, found):
        for retries in (0, -1):
            with pytest.raises(TaskTimeoutError, match=told):
                handle.add.options(timeout=0.2, max_task_retries=retries).remote()
    cluster.start_pod("counter")
    for number, handle in enumerate((made, found), 1):
        in_time = handle.add.options(timeout=PATIENCE).remote()
        assert context.get(in_time, timeout=PATIENCE) == number


def test_an_actor_answers_in_order_with_values_errors_items_and_large_arguments(
    counter: Counter, context: JobContext
) -> None:
    assert context.get(counter.add.remote(2), timeout=PATIENCE) == 42

    for number in range(200):
        counter.note.remote(number)
    assert context.get(counter.noted.remote(), timeout=PATIENCE) == list(range(200))

    with pytest.raises(KeyError, match="no such lesson") as caught:
        context.get(counter.fail.remote(), timeout=PATIENCE)
    assert isinstance(caught.value.__cause__, RemoteTracebackError)
    assert "in fail" in caught.value.__cause__.traceback

    assert list(map(context.get, counter.items.remote(5))) == [0, 1, 2, 3, 4]

    data = bytes(3_000_000)
    assert context.get(counter.size.remote(data), timeout=PATIENCE) == len(data)
    of_the_context = context.run(bytes, 1000)
    assert context.get(counter.size.remote(of_the_context), timeout=PATIENCE) == 1000

    refs = [context.run(pow, 2, 3), counter.add.remote(1)]
    ready, rest = context.wait(refs, num_returns=2, timeout=PATIENCE)
    assert (ready, list(rest)) == (refs, [])
    assert context.get(refs) == [8, 43]

    with pytest.raises(TaskTimeoutError):
        context.get(counter.sleep.options(timeout=0.1).remote(1.0), timeout=PATIENCE)
    assert context.get(counter.add.remote(1), timeout=PATIENCE) == 44, "the actor lives on"


@pytest.mark.parametrize("retries", [0, 1])
def test_who_calls_faster_than_the_actor_answers_waits(
    counter: Counter, context: JobContext, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    limit = SubmitLimit(max_tasks=4)
    monkeypatch.setattr(joined_pool, "SubmitLimit", lambda: limit)
    waits: list[None] = []
    wait_for_room = limit.wait_for_room
    monkeypatch.setattr(limit, "wait_for_room", lambda: (waits.append(None), wait_for_room()))
    note = counter.note.options(max_task_retries=retries)
    for number in range(200):
        note.remote(number)
    assert waits
    assert context.get(counter.noted.remote(), timeout=PATIENCE) == list(range(200))


def test_a_handle_that_was_looked_up_or_pickled_calls_the_same_actor(
    counter: Counter, context: JobContext
) -> None:
    assert context.get(counter.add.remote(1), timeout=PATIENCE) == 41
    found = context.get_actor("train/counter")
    assert context.get(found.add.remote(1), timeout=PATIENCE) == 42
    with pytest.raises(AttributeError, match="no method 'subtract'"):
        found.subtract  # noqa: B018

    data = pickle.dumps(counter)
    assert len(data) < 2000
    assert context.get(pickle.loads(data).add.remote(1), timeout=PATIENCE) == 43


def test_async_methods_run_at_once(cluster: Cluster, context: JobContext) -> None:
    meeting = context.create_actor(programs.Meeting, name="meeting")
    cluster.start_pod("meeting")
    refs = [meeting.meet.remote(50) for _ in range(50)]
    assert context.get(refs, timeout=PATIENCE) == [50] * 50


def test_keys_that_come_after_the_pod_of_the_caller_has_begun_are_waited_for(
    cluster: Cluster, context: JobContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, load = threading.Event(), TransportKey.load

    def note(directory: Path) -> TransportKey:
        tried.set()
        return load(directory)

    monkeypatch.setattr(TransportKey, "load", note)
    monkeypatch.setenv("FRAY_POOL_KEY", str(tmp_path / "auth"))
    handle = context.create_actor(programs.Counter, 40, name="counter")
    cluster.start_pod("counter")
    with ThreadPoolExecutor(1) as caller:
        answer = caller.submit(lambda: context.get(handle.add.remote(2), timeout=PATIENCE))
        assert tried.wait(PATIENCE)
        shutil.copytree(cluster.key, tmp_path / "coming")
        (tmp_path / "coming").rename(tmp_path / "auth")
        assert answer.result(PATIENCE) == 42


def test_a_group_is_one_resource_whose_members_know_their_index(
    cluster: Cluster, context: JobContext
) -> None:
    group = context.create_actor_group(programs.Seat, name="seats", count=2)
    assert cluster.actor("seats")["spec"]["replicas"] == 2
    assert group.statuses() == [MemberState.STARTING, MemberState.STARTING]
    assert len(context.create_actor_group(programs.Seat, name="seats", count=4, get_if_exists=True)) == 2
    cluster.start_pod("seats", FRAY_ACTOR_INDEX="1")
    (second,) = group.wait_ready(1, timeout=PATIENCE)
    assert context.get(second.where.remote(), timeout=PATIENCE) == "seats/1"
    with pytest.raises(GetTimeoutError, match="members 0 of actor group 'seats'"):
        group.wait_ready(timeout=0.01)
    assert "".join(context.get(item) for item in second.letters.remote()) == "seats/1"
    found = context.get_actor("seats-1")
    assert context.get(found.where.remote(), timeout=PATIENCE) == "seats/1"
    with pytest.raises(ActorNotFoundError):
        context.get_actor("seats-2")
    cluster.start_pod("seats")
    ready = pickle.loads(pickle.dumps(group)).wait_ready(timeout=PATIENCE)
    assert ready == list(group.handles)
    assert context.get([each.where.remote() for each in ready]) == ["seats/0", "seats/1"]
    group.shutdown()
    with pytest.raises(ActorNotFoundError):
        context.get_actor("seats-0")

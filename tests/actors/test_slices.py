"""A member on two hosts: both run each call in the same order, and end together."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fray.errors import ActorDiedError, TaskError, UnsupportedFeatureError
from fray.job import JobContext
from fray.job.actors import ActorHandle
from tests.actors import programs
from tests.actors.cluster import Cluster, Pod
from tests.pool.hosts.pools import PATIENCE, wait_until

Shard = ActorHandle[programs.Shard]


@pytest.fixture
def shard(cluster: Cluster, context: JobContext) -> Shard:
    return context.create_actor(programs.Shard, name="shard")


@pytest.fixture
def pods(cluster: Cluster, shard: Shard) -> list[Pod]:
    assert shard is not None
    return cluster.start_slice("shard")


def read_shards(shard: Shard, context: JobContext, folder: Path) -> list[tuple[int, list[int]]]:
    """Return of each host the process and what it was told."""
    assert context.get(shard.write.remote(folder), timeout=PATIENCE) == 0, "the result is that of rank 0"
    texts = [(folder / str(host)).read_text().split(" ", 1) for host in range(2)]
    return [(int(pid), json.loads(seen)) for pid, seen in texts]


def test_calls_run_on_both_hosts_in_one_order(
    shard: Shard, pods: list[Pod], context: JobContext, cluster: Cluster, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(50) as threads:
        handles = [context.get_actor("shard") for _ in range(50)]
        calls = threads.map(lambda each: context.get(each[1].note.remote(each[0])), enumerate(handles))
        assert list(calls) == [None] * 50
    (first, seen), (second, also_seen) = read_shards(shard, context, tmp_path)
    assert first != second
    assert sorted(seen) == list(range(50))
    assert also_seen == seen
    for pod in pods:
        pod.await_ready()
    assert cluster.record("shard")["pod"] == "member-0-0"
    with pytest.raises(UnsupportedFeatureError, match="'letters'"):
        context.get(shard.letters.remote(), timeout=PATIENCE)


def test_an_exception_on_one_host_is_the_error_of_the_call_and_names_it(
    shard: Shard, pods: list[Pod], context: JobContext, tmp_path: Path
) -> None:
    assert len(pods) == 2
    for host in (0, 1):
        with pytest.raises(KeyError, match="no such lesson") as caught:
            context.get(shard.fail_on.remote(host), timeout=PATIENCE)
        assert caught.value.__notes__ == [f"It was raised on host {host} of 2."]


def test_a_host_that_dies_ends_the_member_and_tells_its_callers(
    shard: Shard, pods: list[Pod], context: JobContext, cluster: Cluster
) -> None:
    assert context.get(shard.place.remote(), timeout=PATIENCE)[0] == 0
    blocked = shard.block.remote()
    waiting = shard.place.remote()
    pods[1].kill()
    for ref in (blocked, waiting):
        with pytest.raises(TaskError) as caught:
            context.get(ref, timeout=PATIENCE)
        assert type(caught.value) is ActorDiedError
    assert pods[0].process.wait(PATIENCE) == 1
    told = json.loads(cluster.record("shard")["lastError"])
    assert "host 1" in told["message"]
    assert not told["constructing"]

    for pod in cluster.start_slice("shard"):
        pod.await_ready()
    with pytest.raises(ActorDiedError):
        context.get(shard.place.remote(), timeout=PATIENCE)
    assert context.get(context.get_actor("shard").place.remote(), timeout=PATIENCE)[0] == 0
    assert cluster.record("shard")["restarts"] == "1"


def test_a_process_that_dies_on_the_second_host_ends_the_member_without_any_call(
    shard: Shard, pods: list[Pod], context: JobContext, cluster: Cluster, tmp_path: Path
) -> None:
    _, (second, _) = read_shards(shard, context, tmp_path)
    os.kill(second, signal.SIGKILL)
    assert pods[0].process.wait(PATIENCE) == 1
    assert "host 1" in json.loads(cluster.record("shard")["lastError"])["message"]


def test_a_constructor_that_fails_on_the_second_host_is_told_of_that_host(
    cluster: Cluster, context: JobContext
) -> None:
    shard = context.create_actor(programs.Shard, 1, name="broken")
    pods = cluster.start_slice("broken")
    with pytest.raises(ActorDiedError, match="host 1: no such table"):
        context.get(shard.place.remote(), timeout=PATIENCE)
    assert pods[0].process.wait(PATIENCE) == 1
    assert cluster.record("broken")["ready"] == "false"


def test_a_slice_that_is_asked_to_end_ends(shard: Shard, pods: list[Pod], context: JobContext) -> None:
    assert context.get(shard.place.remote(), timeout=PATIENCE)[0] == 0
    assert [pod.terminate() for pod in pods] == [0, 0]
    wait_until(lambda: not any(pod.is_ready for pod in pods))

"""Actors whose node is lost, or whose operator is replaced: one life at a time, and calls know which."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import cgroups, kubelets, node_status
from e2e.cluster.api import Api
from e2e.cluster.command import await_condition, run
from e2e.cluster.layout import BRIDGE_ADDRESS, Host, Layout
from e2e.job_namespace import JobNamespace, build_job
from e2e.release import HELM_SECONDS, OPERATOR, Release
from e2e.test_actors import await_member, get_member, list_pods
from e2e.test_actors_of_jobs import ACTOR_SECONDS, SMALL, WORKERS, connect
from e2e.test_sick_nodes import SILENT_SECONDS, stopped_kubelet
from fray.cluster import ResourceConfig, create_environment
from fray.errors import ActorDiedError, ActorUnavailableError
from fray.plan.node_evidence import TAINT_OUT_OF_SERVICE

LOST = (ActorDiedError, ActorUnavailableError)
ERROR_SECONDS = 10
"""After which callers of a lost member know of it, at the latest."""
GPUS = ResourceConfig.with_gpu("H100", 8, cpu=0.05, ram="256Mi", disk="100Mi")
"""What two nodes have."""
CALLS = 20
"""By how many calls it shows who answers."""
_CALLER = f"""
import time
from fray.errors import ActorDiedError, ActorUnavailableError
from fray.job import get_default_job_ctx
ctx = get_default_job_ctx()
def ask(handle):
    return ctx.get(handle.tell.remote(), timeout={ERROR_SECONDS})
old = ctx.get_actor("lab/watched")
print("first", ask(old), flush=True)
try:
    while True:
        ask(old)
        time.sleep(0.1)
except (ActorDiedError, ActorUnavailableError) as error:
    print("lost", type(error).__name__, flush=True)
new = ctx.get_actor("lab/watched")
print("second", ctx.get(new.tell.remote()), flush=True)
while True:
    print("answered", ask(new), flush=True)
    try:
        print("answered", ask(old), flush=True)
    except ActorDiedError:
        pass
    time.sleep(0.1)
"""
"""Calls one incarnation until it is lost, and then the next, and the first one too."""


@contextlib.contextmanager
def recorder() -> Iterator[tuple[str, list[str]]]:
    """A server that no node of the cluster has: its address, and the paths that were posted to it so far."""
    posted: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.path.removeprefix("/"))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((BRIDGE_ADDRESS, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{BRIDGE_ADDRESS}:{server.server_port}", posted
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def stopped_pod(host: Host, uid: str) -> Iterator[None]:
    """A pod none of whose processes goes on, on a host without network, for the length of a `with` block."""
    pids = cgroups.pids_in_pod(host.name, uid)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    # Or its kernel would answer for it.
    run(["ip", "link", "set", host.link, "down"])
    try:
        yield
    finally:
        run(["ip", "link", "set", host.link, "up"])
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def out_of_service(jobs: JobNamespace, node: str) -> Iterator[None]:
    """A node of which somebody says, for the length of a `with` block, that nothing runs on it any more."""
    taint = f"{TAINT_OUT_OF_SERVICE}=nodeshutdown:NoExecute"
    jobs.kubectl("taint", "node", node, taint)
    try:
        yield
    finally:
        jobs.kubectl("taint", "node", node, f"{taint}-")


@contextlib.contextmanager
def deleted_node(jobs: JobNamespace, api: Api, host: Host) -> Iterator[None]:
    """A node that is taken out of the cluster with its kubelet, for the length of a `with` block."""
    kubelets.kill_kubelet(host)
    try:
        jobs.kubectl("delete", "node", host.name)
        yield
    finally:
        kubelets.start_kubelet(host)
        node_status.await_ready(host, api, details=jobs.describe)


def read_lines(jobs: JobNamespace, job: str) -> list[list[str]]:
    """The words of each line that the only host of a job has printed, but for what Fray says itself."""
    (text,) = jobs.logs(job)
    words = [line.split() for line in text.splitlines()]
    return [each for each in words if each[:1] in (["first"], ["lost"], ["second"], ["answered"])]


@pytest.mark.usefixtures("stoppable_programs")
def test_a_member_has_one_life_at_a_time_although_its_node_stops_and_comes_back(
    jobs: JobNamespace, layout: Layout, tmp_path: Path
) -> None:
    class Watched:  # pickled by value, as what a test defines within itself is
        def __init__(self, url: str) -> None:
            self.life = uuid.uuid4().hex
            self.url = url
            threading.Thread(target=self.record, daemon=True).start()

        def record(self) -> None:
            while True:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"{self.url}/{self.life}", data=b"", timeout=1).close()
                time.sleep(0.1)

        def tell(self) -> str:
            return self.life

    with recorder() as (url, lives), connect(jobs) as cluster, contextlib.ExitStack() as stack:
        watched = cluster.create_actor(
            Watched, url, name="lab/watched", resources=GPUS, environment=create_environment(tmp_path)
        )
        jobs.submit(build_job("caller", ["python3", "-c", _CALLER], workers=WORKERS))
        old = watched.tell.remote().result(ACTOR_SECONDS)
        jobs.await_job("caller", "condition=Running")
        await_condition(
            "a pod has called it",
            lambda: read_lines(jobs, "caller") == [["first", old]],
            timeout=ACTOR_SECONDS,
            details=jobs.describe,
        )
        actor = cluster.find_actor("lab/watched").metadata.name
        before = get_member(jobs, actor)
        node = before["node"]

        # Kubernetes can't tell whether the pod still runs, which it does.
        with stopped_kubelet(node):
            # The connection of this program goes through the kubelet, that of a pod does not.
            with pytest.raises(LOST):
                watched.tell.remote().result(ERROR_SECONDS)
            jobs.kubectl("delete", "pod", before["pod"], "--grace-period=1", "--wait=false")
            jobs.kubectl.wait(f"node/{node}", "condition=Ready=Unknown", seconds=SILENT_SECONDS)
            await_condition(
                "its status says why there is no other pod",
                lambda: TAINT_OUT_OF_SERVICE in get_member(jobs, actor).get("message", ""),
                timeout=ACTOR_SECONDS,
                details=lambda: str(get_member(jobs, actor)),
            )
            assert [pod["metadata"]["uid"] for pod in list_pods(jobs, actor)] == [before["podUid"]]
            assert read_lines(jobs, "caller") == [["first", old]]
            assert set(lives) == {old}

            with stopped_pod(layout.host_named(node), before["podUid"]):
                stack.enter_context(out_of_service(jobs, node))
                after = await_member(jobs, actor, "lives elsewhere", ready=True, restarts=1)
                assert after["podUid"] != before["podUid"]
                assert after["node"] != node
                await_condition(
                    "a pod has called the next one",
                    lambda: read_lines(jobs, "caller")[2:] != [],
                    timeout=ACTOR_SECONDS,
                    details=jobs.describe,
                )
                (_, lost, (_, new), *_) = read_lines(jobs, "caller")
                assert lost[0] == "lost"
                assert new not in {old, ""}
                first = lives.index(new)
                assert (set(lives[:first]), set(lives[first:])) == ({old}, {new})
            # It comes back from the dead, at its old address.
            await_condition("it lives again", lambda: old in lives[first:], timeout=ACTOR_SECONDS)
            heard = len(read_lines(jobs, "caller"))
            await_condition(
                "a pod has called on",
                lambda: len(read_lines(jobs, "caller")) >= heard + CALLS,
                timeout=ACTOR_SECONDS,
                details=jobs.describe,
            )
            for _ in range(CALLS):
                assert cluster.get_actor("lab/watched").tell.remote().result(ERROR_SECONDS) == new
            with pytest.raises(ActorDiedError):
                watched.tell.remote().result(ERROR_SECONDS)
        await_condition(
            "its kubelet has ended it",
            lambda: not cgroups.pids_in_pod(node, before["podUid"]),
            timeout=ACTOR_SECONDS,
        )
        jobs.kubectl.wait(f"node/{node}", "condition=Ready", seconds=SILENT_SECONDS)
        assert {tuple(words) for words in read_lines(jobs, "caller")[3:]} == {("answered", new)}
        conditions = jobs.kubectl.get("frayactor", actor)["status"]["conditions"]
        assert "MultiplePods" not in {condition["type"] for condition in conditions}


@pytest.mark.usefixtures("stoppable_programs")
def test_another_member_lives_elsewhere_once_its_node_is_deleted(
    jobs: JobNamespace, layout: Layout, api: Api, tmp_path: Path
) -> None:
    class Named:  # pickled by value, as above
        def __init__(self) -> None:
            self.life = uuid.uuid4().hex

        def tell(self) -> str:
            return self.life

    with connect(jobs) as cluster:
        named = cluster.create_actor(
            Named, name="lab/named", resources=GPUS, environment=create_environment(tmp_path)
        )
        old = named.tell.remote().result(ACTOR_SECONDS)
        actor = cluster.find_actor("lab/named").metadata.name
        before = get_member(jobs, actor)
        host = layout.host_named(before["node"])
        with deleted_node(jobs, api, host), stopped_pod(host, before["podUid"]):
            with pytest.raises(LOST):
                named.tell.remote().result(ERROR_SECONDS)
            after = await_member(jobs, actor, "lives elsewhere", ready=True, restarts=1)
            assert after["node"] != before["node"]
            new = cluster.get_actor("lab/named").tell.remote().result(ACTOR_SECONDS)
            assert new not in {old, ""}
        await_condition(
            "the kubelet that came back has ended the pod that nobody knows any more",
            lambda: not cgroups.pids_in_pod(host.name, before["podUid"]),
            timeout=ACTOR_SECONDS,
        )
        assert cluster.get_actor("lab/named").tell.remote().result(ERROR_SECONDS) == new
        with pytest.raises(ActorDiedError):
            named.tell.remote().result(ERROR_SECONDS)


def read_members(jobs: JobNamespace, actor: str) -> list[dict[str, Any]]:
    """The members of an actor, as the status has them."""
    found: list[dict[str, Any]] = jobs.kubectl.get("frayactor", actor)["status"]["members"]
    return found


def await_members(jobs: JobNamespace, actor: str, count: int) -> None:
    """Wait until the status of an actor has so many members, all ready."""
    await_condition(
        f"{actor} has {count} ready members",
        lambda: [member.get("ready") for member in read_members(jobs, actor)] == [True] * count,
        timeout=ACTOR_SECONDS,
        details=jobs.describe,
    )


def list_uids(pods: list[dict[str, Any]]) -> set[str]:
    """Which pods these are."""
    return {pod["metadata"]["uid"] for pod in pods}


def test_members_live_and_are_called_on_while_the_operator_is_upgraded(
    jobs: JobNamespace, release: Release, tmp_path: Path
) -> None:
    class Counter:  # pickled by value, as above
        def __init__(self) -> None:
            self.value = 0

        def add(self) -> int:
            self.value += 1
            return self.value

    ended = threading.Event()
    system = jobs.kubectl.within(release.namespace)
    with connect(jobs) as cluster, ThreadPoolExecutor() as threads:
        group = cluster.create_actor_group(
            Counter, name="lab/counters", count=2, resources=SMALL, environment=create_environment(tmp_path)
        )
        handles = group.wait_ready(timeout=ACTOR_SECONDS)
        actor = cluster.find_actor("lab/counters").metadata.name
        # A member answers before its kubelet has seen that, and its status tells it.
        await_members(jobs, actor, 2)
        members, pods = read_members(jobs, actor), list_pods(jobs, actor)
        answers: list[list[int]] = [[], []]

        def call_on(index: int) -> None:
            while not ended.is_set():
                answers[index].append(handles[index].add.remote().result(ERROR_SECONDS))

        calling = [threads.submit(call_on, index) for index in range(2)]
        try:
            operators = list_uids(system.items("pods", f"--selector={OPERATOR}"))
            answered = [len(each) for each in answers]
            release.install("--set-string=podAnnotations.upgraded=yes")
            # Helm waits for the new pods only.
            await_condition(
                "the operator's old pods are gone",
                lambda: not operators & list_uids(system.items("pods", f"--selector={OPERATOR}")),
                timeout=HELM_SECONDS,
                details=jobs.describe,
            )
            # The new one has looked at the actor when it does this.
            jobs.kubectl("scale", f"frayactor/{actor}", "--replicas=3")
            await_members(jobs, actor, 3)
            assert all(len(each) > had for each, had in zip(answers, answered, strict=True))
        finally:
            release.install()
            ended.set()
        for call in calling:
            call.result()
        # One instance has answered each call once.
        for each in answers:
            assert each == list(range(1, len(each) + 1))
        assert read_members(jobs, actor)[:2] == members
        assert list_uids(pods) < list_uids(list_pods(jobs, actor))
        statuses = [each for pod in list_pods(jobs, actor) for each in pod["status"]["containerStatuses"]]
        assert {status["restartCount"] for status in statuses} == {0}

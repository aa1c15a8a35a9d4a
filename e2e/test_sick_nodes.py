"""A node on which a job's hosts fail again and again, since it is broken: the third attempt goes elsewhere.

Both GPU nodes would do; the other one is cordoned until the job has failed twice on the first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.cluster.daemons import find_daemon
from e2e.cluster.layout import Layout
from e2e.job_namespace import JobNamespace, build_shell, until_told

GPU = {"gpu": {"type": "nvidia-h100-80gb", "count": 8}}
BUSY = "open(/dev/vfio/0): Device or resource busy"
GIVES_UP_SOON = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 1,
}
SILENT_SECONDS = 300.0
"""Kubernetes calls a node unreachable after 50 s of silence, and after ten more its hosts count as ended."""


@pytest.fixture
def nodes(jobs: JobNamespace, layout: Layout) -> Iterator[tuple[str, str]]:
    """Names of a GPU node that takes pods, and of one that doesn't until it is uncordoned."""
    sick, sound = (host.name for host in layout.pool("gpu"))
    jobs.kubectl("cordon", sound)
    try:
        yield sick, sound
    finally:
        jobs.kubectl("uncordon", sound)


@contextmanager
def stopped_kubelet(node: str) -> Iterator[None]:
    """A node whose kubelet says nothing for the length of a `with` block; its pods run on."""
    pid = find_daemon(node, "kubelet", "kubelet")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def await_fault(jobs: JobNamespace, name: str, attempt: int, node: str) -> None:
    """Wait until an attempt blames a node."""
    path = f"{{.status.attempts[?(@.number=={attempt})].nodeFaults[*].node}}"
    jobs.await_job(name, f"jsonpath={path}={node}", seconds=SILENT_SECONDS)


def node_of(jobs: JobNamespace, name: str, attempt: int) -> str:
    """The node of the only pod of an attempt."""
    (pod,) = jobs.pods(name, attempt=attempt)
    return str(pod["spec"]["nodeName"])


def test_chips_that_are_busy_twice_send_the_third_attempt_to_another_node(
    jobs: JobNamespace, nodes: tuple[str, str]
) -> None:
    sick, sound = nodes
    script = f'test "$NODE" = "{sound}" || {{ echo "{BUSY}"; exit 1; }}'
    env = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    container = {"name": "main", "env": env}
    template = {"spec": {"containers": [container]}}
    jobs.submit(build_shell("busy", script, resources=GPU, retries={"failures": 2}, podTemplate=template))
    await_fault(jobs, "busy", 2, sick)
    jobs.await_reason("busy", "NodesAvoided")
    told = jobs.condition("busy", "Scheduled")["message"]
    assert f"avoided since hosts failed there: {sick} until " in told
    jobs.kubectl("uncordon", sound)
    status = jobs.await_end("busy")
    assert status["phase"] == "Succeeded", status
    assert [node_of(jobs, "busy", attempt) for attempt in (1, 2, 3)] == [sick, sick, sound]
    (avoided,) = status["avoidedNodes"]
    assert avoided["node"] == sick
    assert avoided["reason"] == f"hosts failed there in attempts 1 and 2: {BUSY}"


@pytest.mark.usefixtures("stoppable_programs")
@pytest.mark.timeout(1200, func_only=True)
def test_a_node_that_falls_silent_twice_is_avoided(jobs: JobNamespace, nodes: tuple[str, str]) -> None:
    sick, sound = nodes
    template = {"spec": {"tolerations": [GIVES_UP_SOON]}}
    jobs.submit(build_shell("silent", until_told(), resources=GPU, podTemplate=template))
    for attempt in (1, 2):
        jobs.await_job("silent", f"jsonpath={{.status.attempt}}={attempt}")
        jobs.await_job("silent", "condition=Running")
        with stopped_kubelet(sick):
            await_fault(jobs, "silent", attempt, sick)
    jobs.kubectl("uncordon", sound)
    jobs.await_job("silent", "jsonpath={.status.attempt}=3")
    jobs.await_job("silent", "condition=Running")
    assert node_of(jobs, "silent", 3) == sound
    jobs.tell("silent", attempt=3)
    status = jobs.await_end("silent")
    assert [attempt["verdict"] for attempt in status["attempts"]] == ["Preemption", "Preemption", "Success"]
    assert [entry["node"] for entry in status["avoidedNodes"]] == [sick]

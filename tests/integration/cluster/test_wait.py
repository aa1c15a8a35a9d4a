"""Waiting for jobs: to their end, whatever becomes of the connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.faulty_proxy import Call, Fault, FaultyProxy, Harm
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import (
    JobDeletedError,
    JobFailedError,
    JobNotFoundError,
    JobStoppedError,
    WaitTimeoutError,
)
from fray.types import JobId, JobStatus
from tests.integration.cluster.jobs import Background, command, finish
from tests.integration.controller.hands import eventually
from tests.integration.frayjobs import FrayJobs


def watched(proxy: FaultyProxy) -> Any:
    return eventually(lambda: proxy.open_watches("frayjobs"))


def count(proxy: FaultyProxy, what: str) -> int:
    return sum(call.what == what for call in proxy.calls)


def test_200_jobs_are_waited_for_by_one_watch(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    jobs = [proxied.launch(command(f"job-{index}")) for index in range(200)]
    finish(frayjobs, jobs[7])
    proxy.calls.clear()
    waiting = Background(lambda: proxied.wait([*jobs, jobs[0]]))
    watched(proxy)
    finish(frayjobs, jobs[3], "Failed")
    for job in jobs:
        if job not in (jobs[3], jobs[7]):
            finish(frayjobs, job)
    infos = waiting.result()
    assert [info.job_id for info in infos] == [*jobs, jobs[0]]
    assert {info.job_id for info in infos if info.status is not JobStatus.SUCCEEDED} == {jobs[3]}
    assert [call.what for call in proxy.calls] == ["GET frayjobs", "WATCH frayjobs"]
    eventually(lambda: proxy.open_watches("frayjobs") == 0)  # it hears of the end a moment later


def test_one_job_is_watched_alone(proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs) -> None:
    job = proxied.launch(command())
    waiting = Background(lambda: proxied.wait(job))
    watched(proxy)
    finish(frayjobs, job)
    assert waiting.result().status is JobStatus.SUCCEEDED
    assert proxy.calls[-1].query["fieldSelector"] == f"metadata.name={job}"


def expire(proxy: FaultyProxy) -> None:
    proxy.expire_watches("frayjobs")


def cut(proxy: FaultyProxy) -> None:
    proxy.cut_watches("frayjobs")


def fail(proxy: FaultyProxy) -> None:
    proxy.expire_watches("frayjobs", code=500, reason="InternalError")


def go_down(proxy: FaultyProxy) -> None:
    """Be away for a while: five requests are refused in different ways."""
    left = [
        Fault(Harm.CUT),
        Fault(Harm.ANSWER, 429, "TooManyRequests"),
        Fault(Harm.ANSWER, 503, "ServiceUnavailable"),
        Fault(Harm.CUT_IN_BODY),
        Fault(Harm.ANSWER, 410, "Expired"),
    ]
    proxy.rule = lambda _: left.pop() if left else None
    proxy.cut_watches("frayjobs")


@pytest.mark.parametrize("harm", [expire, cut, fail, go_down])
@pytest.mark.parametrize("others", [0, 1], ids=["one job", "two jobs"])
def test_a_wait_survives_what_happens_to_its_watch(
    proxied: KubernetesCluster,
    proxy: FaultyProxy,
    frayjobs: FrayJobs,
    harm: Callable[[FaultyProxy], None],
    others: int,
) -> None:
    jobs = [proxied.launch(command(f"job-{index}")) for index in range(1 + others)]
    waiting = Background(lambda: proxied.wait(jobs))
    watched(proxy)
    harm(proxy)
    # What happens while nobody watches is told afterwards.
    for job in jobs:
        finish(frayjobs, job)
    assert [info.status for info in waiting.result()] == [JobStatus.SUCCEEDED] * len(jobs)
    assert count(proxy, "WATCH frayjobs") < 10


def test_a_watch_that_is_cut_goes_on_where_it_was(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    job = proxied.launch(command())
    waiting = Background(lambda: proxied.wait(job))
    watched(proxy)
    proxy.cut_watches("frayjobs")
    eventually(lambda: count(proxy, "WATCH frayjobs") > 1)
    finish(frayjobs, job)
    waiting.result()
    assert sum(call.method == "GET" and not call.watch for call in proxy.calls) == 1


def test_a_version_that_is_too_old_is_followed_by_a_new_list(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    job = proxied.launch(command())
    waiting = Background(lambda: proxied.wait(job))
    watched(proxy)
    expired = Fault(Harm.ANSWER, 410, "Expired")
    forgotten = True

    def rule(call: Call) -> Fault | None:
        nonlocal forgotten
        if call.what == "GET frayjobs":
            forgotten = False
        return expired if call.watch and forgotten else None

    proxy.rule = rule
    proxy.cut_watches("frayjobs")
    eventually(lambda: not forgotten)
    finish(frayjobs, job)
    assert waiting.result().status is JobStatus.SUCCEEDED


def test_a_job_that_is_deleted_ends_the_wait(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    jobs = [proxied.launch(command(f"job-{index}")) for index in range(2)]
    waiting = Background(lambda: proxied.wait(jobs))
    watched(proxy)
    finish(frayjobs, jobs[0])
    for job in jobs:  # the first as by its time to live, which is no harm
        assert frayjobs.api.delete(frayjobs.path(job)).ok
    with pytest.raises(JobDeletedError, match="job-1"):
        waiting.result()


@pytest.mark.parametrize("harm", [expire, cut])
def test_a_job_that_is_made_anew_during_a_wait_is_another(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs, harm: Callable[[FaultyProxy], None]
) -> None:
    job = proxied.launch(command())
    waiting = Background(lambda: proxied.wait(job))
    watched(proxy)
    refused = Fault(Harm.ANSWER, 503, "ServiceUnavailable")
    proxy.rule = lambda _: refused
    harm(proxy)
    manifest = frayjobs.api.get(frayjobs.path(job)).body
    assert frayjobs.api.delete(frayjobs.path(job)).ok
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
        manifest["metadata"].pop(key)
    frayjobs.created(manifest)
    proxy.rule = lambda _: None
    with pytest.raises(JobDeletedError):
        waiting.result()


def test_names_that_are_not_there_are_told(cluster: KubernetesCluster) -> None:
    cluster.launch(command("train-7b"))
    for act in (cluster.poll, cluster.wait, cluster.terminate, cluster.outcome):
        with pytest.raises(JobNotFoundError, match=r"no job 'train-7'(.|\n)*Known jobs: train-7b"):
            act(JobId("train-7"))


def test_a_limit_tells_what_is_left(cluster: KubernetesCluster, frayjobs: FrayJobs) -> None:
    jobs = [cluster.launch(command(f"job-{index}")) for index in range(2)]
    finish(frayjobs, jobs[0])
    for timeout in (0, 0.2):
        with pytest.raises(WaitTimeoutError) as caught:
            cluster.wait(jobs, timeout=timeout)
        assert caught.value.unfinished == (jobs[1],)
    assert cluster.wait(jobs[0], timeout=0).status is JobStatus.SUCCEEDED


def test_a_job_that_did_not_succeed_is_raised_on_demand(
    cluster: KubernetesCluster, frayjobs: FrayJobs
) -> None:
    for ending, kind in (("Failed", JobFailedError), ("Stopped", JobStoppedError)):
        job = cluster.launch(command())
        finish(frayjobs, job, ending)
        assert cluster.wait(job).status.title() == ending
        with pytest.raises(kind, match=f"{job} told so"):
            cluster.wait(job, raise_on_failure=True)


def test_terminate_asks_once(proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs) -> None:
    job = proxied.launch(command())
    conflict: list[Fault] = [Fault(Harm.ANSWER, 409, "Conflict"), Fault(Harm.CUT_AFTER)]

    def rule(call: Call) -> Fault | None:
        return conflict.pop(0) if conflict and call.method == "PUT" else None

    proxy.rule = rule
    proxied.terminate(job)
    assert frayjobs.api.get(frayjobs.path(job)).body["spec"]["stopped"] is True
    writes = count(proxy, "PUT frayjobs")
    proxied.terminate(job)
    finished = proxied.launch(command("finished"))
    finish(frayjobs, finished)
    proxied.terminate(finished)
    assert count(proxy, "PUT frayjobs") == writes


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../..",
        "train/status",
        "train?x",
        "train#",
        "train%2Fstatus",
        "a,b",
        "Train",
        "a" * 300,
    ],
)
def test_names_that_no_job_can_have_are_not_there(cluster: KubernetesCluster, name: str) -> None:
    """As a part of a URL or of a selector they would mean something else."""
    cluster.launch(command("train"))
    job = JobId(name)
    for act in (cluster.poll, cluster.terminate, cluster.outcome, cluster.logs, cluster.wait):
        with pytest.raises(JobNotFoundError, match="Known jobs: train"):
            act(job)
    with pytest.raises(JobNotFoundError):
        cluster.wait([JobId("train"), job])

"""A pod counts only if its chain of controllers ends, by uid, at a JobSet of a FrayJob in its namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.errors import UnreachableError
from fray.kube.resources import JOBS, JOBSETS, PODS
from fray.testing.memory import Call, MemoryApi, MemoryServer
from fray.vocabulary import (
    LABEL_COMPLETION_INDEX,
    LABEL_JOB,
    LABEL_JOB_INDEX,
    LABEL_JOB_UID,
    LABEL_JOBSET_UID,
)
from fray_operator.frayjobs import FRAYJOB
from fray_operator.informer import Informer, JobKey, trim_job, trim_jobset
from fray_operator.pods import PodInformer
from tests.unit.controller.virtual_time import run

TRAIN = ("default", "train")


def own(kind: str, owner: Manifest) -> list[Manifest]:
    metadata = owner["metadata"]
    return [{"kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}]


class Cluster:
    """A server, and the caches of an operator that watches it."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.api = MemoryApi(self.server)
        self.told: list[JobKey] = []
        self.steps: list[int] = []
        """How many pods the job had at each step of one that may wait; all are told too."""
        self.jobsets, self.jobs = (
            Informer(self.api, kind, FRAYJOB, namespace=None, on_change=lambda _: None, trim=trim)
            for kind, trim in ((JOBSETS, trim_jobset), (JOBS, trim_job))
        )
        self.pods = PodInformer(
            self.api,
            FRAYJOB,
            namespace=None,
            on_change=self.told.append,
            on_step=self.step,
            jobs=self.jobs,
            jobsets=self.jobsets,
        )
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for informer in (self.jobsets, self.jobs, self.pods):
            self.tasks.append(asyncio.create_task(informer.run()))
            await informer.synced.wait()

    def step(self, job: JobKey, pods: int) -> None:
        self.told.append(job)
        self.steps.append(pods)

    def jobset(self, name: str = "train-a1", *, job: str = "train", uid: str = "f1") -> Manifest:
        owner = {"kind": "FrayJob", "name": job, "uid": uid, "controller": True}
        labels = {LABEL_JOB: job, LABEL_JOB_UID: uid}
        return self.server.store(
            JOBSETS, {"metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}}
        )

    def job(self, jobset: Manifest, **metadata: Any) -> Manifest:
        name = f"{jobset['metadata']['name']}-slice-0"
        labels = jobset["metadata"]["labels"]
        told = {"name": name, "labels": labels, "ownerReferences": own("JobSet", jobset), **metadata}
        return self.server.store(JOBS, {"metadata": told})

    def pod(self, name: str, owners: list[Manifest], *, job: str = "train", **metadata: Any) -> Manifest:
        labels = {LABEL_JOB: job, LABEL_JOB_INDEX: "0", LABEL_COMPLETION_INDEX: "0", LABEL_JOBSET_UID: "told"}
        told = {"name": name, "labels": labels, "ownerReferences": owners, **metadata}
        return self.server.store(PODS, {"metadata": told, "spec": {}, "status": {"phase": "Running"}})

    def kept(self, key: JobKey = TRAIN) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods.of_job(key)]

    def held(self, key: JobKey = TRAIN) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.pods.held_of_job(key))

    def asked(self) -> list[Call]:
        return [call for call in self.server.calls if call.method == "GET"]


def follow(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = Cluster()
        try:
            await story(cluster)
            assert not [task for task in cluster.tasks if task.done()]
        finally:
            for task in cluster.tasks:
                task.cancel()
            await asyncio.gather(*cluster.tasks, return_exceptions=True)

    run(main())


@pytest.mark.parametrize("before", [True, False], ids=["listed", "watched"])
def test_a_pod_of_a_job_of_a_known_jobset_is_kept_with_the_labels_of_its_jobset(*, before: bool) -> None:
    async def story(cluster: Cluster) -> None:
        if not before:
            await cluster.start()
        jobset = cluster.jobset()
        cluster.pod("a", own("Job", cluster.job(jobset)), job="other")
        if before:
            await cluster.start()
        await asyncio.sleep(1)
        (pod,) = cluster.pods.of_job(TRAIN)
        labels = pod["metadata"]["labels"]
        assert (labels[LABEL_JOBSET_UID], labels[LABEL_JOB_UID]) == (jobset["metadata"]["uid"], "f1")
        assert cluster.told == [TRAIN]
        assert not cluster.asked()

    follow(story)


FAILED = {"state": {"terminated": {"exitCode": 3, "finishedAt": "2026-01-31T12:00:00Z"}}}
TAKEN = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        ({"phase": "Running"}, True),
        ({"phase": "Succeeded"}, True),
        ({"phase": "Failed"}, False),
        ({"phase": "Running", "containerStatuses": [{"name": "main", **FAILED}]}, False),
        ({"phase": "Running", "conditions": [TAKEN]}, False),
    ],
    ids=["runs", "ends well", "fails", "has failed in a pod that still runs", "is taken away"],
)
def test_only_steps_of_pods_that_neither_fail_nor_are_taken_away_may_wait(
    status: Manifest, *, waits: bool
) -> None:
    async def story(cluster: Cluster) -> None:
        owners = own("Job", cluster.job(cluster.jobset()))
        cluster.pod("a", owners)
        pod = cluster.pod("b", owners)
        await cluster.start()
        cluster.told.clear()
        cluster.steps.clear()
        cluster.server.store(PODS, {**pod, "status": {**status, "message": "it has changed"}})
        await asyncio.sleep(1)
        assert cluster.told == [TRAIN]
        assert cluster.steps == ([2] if waits else [])

    follow(story)


@pytest.mark.parametrize("before", [True, False], ids=["listed", "watched"])
def test_pods_that_only_look_like_ones_of_a_job_are_dropped(*, before: bool) -> None:
    async def story(cluster: Cluster) -> None:
        if not before:
            await cluster.start()
        job = cluster.job(cluster.jobset())
        foreign = cluster.server.store(
            JOBS, {"metadata": {"name": "foreign", "labels": {LABEL_JOB: "train"}}}
        )
        cluster.pod("ownerless", [])
        cluster.pod("owned", [{**own("Job", job)[0], "controller": False}])
        cluster.pod("elsewhere", own("Job", job), namespace="other")
        cluster.pod("of-a-foreign-job", own("Job", foreign))
        cluster.pod("of-nothing", [{"kind": "Job", "name": "none", "uid": "none", "controller": True}])
        cluster.pod("of-a-name", [{**own("Job", job)[0], "uid": "another"}])
        if before:
            await cluster.start()
        await asyncio.sleep(60)
        assert cluster.kept() == []
        assert cluster.told == []

    follow(story)


def test_a_pod_may_belong_to_the_jobset_itself() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        cluster.pod("of-the-jobset", own("JobSet", cluster.jobset()))
        cluster.pod("of-no-jobset", [{"kind": "JobSet", "name": "none", "uid": "none", "controller": True}])
        await asyncio.sleep(60)
        assert cluster.kept() == ["of-the-jobset"]

    follow(story)


def test_whose_an_unknown_job_is_is_asked_once_whatever_the_number_of_its_pods() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        foreign = cluster.server.store(JOBS, {"metadata": {"name": "foreign", "labels": {}}})
        for number in range(50):
            cluster.pod(f"before-{number}", own("Job", foreign))
        await asyncio.sleep(60)
        for number in range(50):
            cluster.pod(f"after-{number}", own("Job", foreign))
        await asyncio.sleep(60)
        assert cluster.asked() == [Call("GET", JOBS, "foreign")]

    follow(story)


def test_owners_that_no_watch_tells_of_are_asked_for_before_a_pod_is_dropped() -> None:
    async def story(cluster: Cluster) -> None:
        job = cluster.job(cluster.jobset(), labels={})
        await cluster.start()
        cluster.pod("a", own("Job", job))
        await asyncio.sleep(60)
        assert cluster.kept() == ["a"]
        assert cluster.asked() == [Call("GET", JOBS, "train-a1-slice-0")]

    follow(story)


def test_a_server_that_does_not_say_whose_a_job_is_is_asked_again() -> None:
    async def story(cluster: Cluster) -> None:
        async def fail(call: Call) -> None:
            if call.method == "GET" and len(failed) < 3:
                failed.append(call)
                raise UnreachableError("GET jobs", 0, "lost", "")

        failed: list[Call] = []
        job = cluster.job(cluster.jobset(), labels={})
        await cluster.start()
        cluster.api.before = fail
        cluster.pod("a", own("Job", job))
        await asyncio.sleep(60)
        assert cluster.kept() == ["a"]
        assert len(failed) == 3

    follow(story)


def test_a_pod_that_is_told_of_before_its_owners_is_kept_once_they_are_told() -> None:
    async def story(cluster: Cluster) -> None:
        jobset = cluster.server.store(JOBSETS, {"metadata": {"name": "later"}})
        job = cluster.server.store(JOBS, {"metadata": {"name": "later"}})
        await cluster.start()
        cluster.pod("a", own("Job", job))
        gone = cluster.pod("b", own("Job", job))
        await asyncio.sleep(0.5)
        cluster.server.remove(PODS, gone["metadata"]["name"])
        owner = {"kind": "FrayJob", "name": "train", "uid": "f1", "controller": True}
        jobset["metadata"] |= {"labels": {LABEL_JOB: "train"}, "ownerReferences": [owner]}
        job["metadata"] |= {"labels": {LABEL_JOB: "train"}, "ownerReferences": own("JobSet", jobset)}
        cluster.server.store(JOBSETS, jobset)
        cluster.server.store(JOBS, job)
        await asyncio.sleep(0.4)
        assert cluster.kept() == ["a"]
        assert not cluster.asked()

    follow(story)


def test_a_pod_outlives_its_owners() -> None:
    async def story(cluster: Cluster) -> None:
        jobset = cluster.jobset()
        job = cluster.job(jobset)
        await cluster.start()
        pod = cluster.pod("a", own("Job", job))
        await asyncio.sleep(1)
        cluster.server.remove(JOBSETS, jobset["metadata"]["name"])
        cluster.server.remove(JOBS, job["metadata"]["name"])
        await asyncio.sleep(1)
        cluster.server.store(PODS, {**pod, "status": {"phase": "Failed"}})
        await asyncio.sleep(60)
        (kept,) = cluster.pods.of_job(TRAIN)
        assert kept["status"]["phase"] == "Failed"
        assert kept["metadata"]["labels"][LABEL_JOBSET_UID] == jobset["metadata"]["uid"]
        assert not cluster.asked()

    follow(story)


@pytest.mark.parametrize("left", [True, False], ids=["job-is-left", "job-is-gone"])
def test_a_pod_that_is_seen_first_after_its_owners_went_is_in_the_way_until_it_has_gone(
    *, left: bool
) -> None:
    async def story(cluster: Cluster) -> None:
        jobset = cluster.jobset()
        job = cluster.job(jobset)
        cluster.pod("a", own("Job", job))
        cluster.server.remove(JOBSETS, jobset["metadata"]["name"])
        if not left:
            cluster.server.remove(JOBS, job["metadata"]["name"])
        await cluster.start()
        for _ in range(2):
            assert cluster.held() == ["a"]
            await asyncio.sleep(60)
        assert cluster.kept() == []
        assert len(cluster.asked()) == (2 if left else 1)
        assert cluster.told == []
        cluster.server.remove(PODS, "a")
        await asyncio.sleep(1)
        assert cluster.held() == []
        assert cluster.told == [TRAIN]

    follow(story)


def test_pods_of_others_are_in_the_way_of_nothing_once_the_server_has_told_whose_they_are() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        by_cron = [{"kind": "CronJob", "name": "nightly", "uid": "c1", "controller": True}]
        nightly = cluster.server.store(JOBS, {"metadata": {"name": "nightly-1", "ownerReferences": by_cron}})
        jobset = cluster.server.store(JOBSETS, {"metadata": {"name": "other", "labels": {}}})
        cluster.pod("of-a-cron-job", own("Job", nightly))
        cluster.pod("of-another-jobset", own("JobSet", jobset))
        await asyncio.sleep(0.5)
        assert cluster.held() == ["of-a-cron-job", "of-another-jobset"]
        await asyncio.sleep(60)
        assert (cluster.held(), cluster.kept()) == ([], [])
        assert cluster.told == [TRAIN, TRAIN]

    follow(story)


def test_at_most_two_pods_of_an_index_are_kept_the_latest() -> None:
    async def story(cluster: Cluster) -> None:
        job = cluster.job(cluster.jobset())
        await cluster.start()
        for number in range(5):
            created = f"2026-01-31T12:00:0{number}Z"
            cluster.pod(f"p{number}", own("Job", job), creationTimestamp=created)
        await asyncio.sleep(1)
        assert cluster.kept() == ["p3", "p4"]
        for name in ("p3", "p4"):
            cluster.server.remove(PODS, name)
        await asyncio.sleep(1)
        assert cluster.kept() == []
        assert not cluster.pods._by_index

    follow(story)


def test_what_the_server_has_is_read_as_what_is_kept() -> None:
    async def story(cluster: Cluster) -> None:
        jobset = cluster.jobset()
        uid = jobset["metadata"]["uid"]
        labels = {LABEL_JOB: "train", LABEL_JOBSET_UID: uid}
        await cluster.start()
        cluster.jobs._packed.clear()  # its watch is behind
        cluster.jobs._listed_version = "0"
        job = cluster.job(jobset, labels=labels)
        cluster.pod("real", own("Job", job), labels=labels)
        cluster.pod("forged", [], labels=labels)
        found = await cluster.pods.read(namespace="default", labels=f"{LABEL_JOBSET_UID}={uid}")
        assert [pod["metadata"]["name"] for pod in found] == ["real"]

    follow(story)


def test_so_many_pods_are_held_at_most() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start()
        for number in range(40):
            affinity = {"much": "x" * 1_000_000}
            owner = {"kind": "Job", "name": "none", "uid": f"none-{number}", "controller": True}
            pod = cluster.pod(f"p{number}", [owner])
            cluster.server.store(PODS, {**pod, "spec": {"affinity": affinity}})
        await asyncio.sleep(0.05)
        assert 0 < cluster.pods._held_bytes <= 8 << 20
        await asyncio.sleep(60)
        assert 0 < cluster.pods._held_bytes <= 8 << 20
        for number in range(40):
            cluster.server.remove(PODS, f"p{number}")
        await asyncio.sleep(1)
        assert (cluster.pods._held, cluster.pods._held_bytes) == ({}, 0)

    follow(story)

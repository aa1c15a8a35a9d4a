"""Copies of a job for measurements of scale: whole, consistent, and each a job of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.scale.copies import Copy, Original, build_job
from fray.plan.gang import derive_gang
from fray.plan.pod_observation import derive_gang_observation
from fray.vocabulary import (
    LABEL_COMPLETION_INDEX,
    LABEL_JOB,
    LABEL_JOB_INDEX,
    LABEL_JOB_UID,
    LABEL_JOBSET_UID,
)
from fray.wire.frayjob import FrayJob
from fray_operator.ownership import is_made_for, is_owned

Manifest = dict[str, Any]

JOB_UID, JOBSET_UID, POD_UID = (f"00000000-0000-4000-8000-00000000000{digit}" for digit in "123")


def metadata(name: str, uid: str, created: str, **labels: str) -> Manifest:
    return {
        "name": name,
        "namespace": "many",
        "uid": uid,
        "creationTimestamp": created,
        "resourceVersion": "7",
        "generateName": "scale-original-",
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "managedFields": [{"manager": "fray"}],
        "labels": labels,
    }


ORIGINAL = Original(
    job={
        "metadata": metadata("scale-original", JOB_UID, "2026-01-01T00:00:00Z"),
        "spec": {"entrypoint": {"command": ["true"]}},
        "status": {
            "attempts": [
                {"number": 1, "jobSet": "scale-original-a1", "runningTime": "2026-01-01T00:00:09.500Z"}
            ]
        },
    },
    jobset={
        "metadata": metadata(
            "scale-original-a1",
            JOBSET_UID,
            "2026-01-01T00:00:01Z",
            **{LABEL_JOB: "scale-original", LABEL_JOB_UID: JOB_UID},
        ),
        "spec": {"suspend": False},
    },
    pods=[
        {
            "metadata": {
                **metadata(
                    "scale-original-a1-slice-0-0-abcde",
                    POD_UID,
                    "2026-01-01T00:00:02Z",
                    **{
                        LABEL_JOB: "scale-original",
                        LABEL_JOB_UID: JOB_UID,
                        LABEL_JOBSET_UID: JOBSET_UID,
                        LABEL_JOB_INDEX: "0",
                        LABEL_COMPLETION_INDEX: "0",
                    },
                ),
                "ownerReferences": [{"kind": "Job", "name": "scale-original-a1-slice-0", "uid": "4"}],
            },
            "spec": {
                "nodeName": "node",
                "containers": [{"env": [{"name": "JOB", "value": "scale-original"}]}],
            },
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:03Z"},
        }
    ],
)


@pytest.fixture
def copied() -> tuple[Manifest, Manifest, Manifest]:
    """The copy `new`, made a day and a second later, as a server would have it."""
    made = build_job(ORIGINAL, "new")
    made["metadata"] |= {"uid": "job", "creationTimestamp": "2026-01-02T00:00:01Z"}
    copy = Copy(ORIGINAL, made)
    job = {**made, "status": copy.build_status()}
    jobset = copy.build_jobset()
    jobset["metadata"] |= {"uid": "jobset", "creationTimestamp": "2026-01-02T00:00:02Z"}
    (pod,) = copy.build_pods(jobset, node="fake-1")
    pod["metadata"] |= {"uid": "pod", "creationTimestamp": "2026-01-02T00:00:03Z"}
    return job, jobset, pod


def test_nothing_of_a_copy_refers_to_the_original(copied: tuple[Manifest, ...]) -> None:
    text = json.dumps(copied)
    for known in (
        "scale-original",
        JOB_UID,
        JOBSET_UID,
        POD_UID,
        "2026-01-01",
        "managedFields",
        "finalizers",
    ):
        assert known not in text


def test_a_copy_is_a_running_gang_to_the_operator(copied: tuple[Manifest, ...]) -> None:
    manifest, jobset, pod = copied
    job = FrayJob.from_manifest(manifest)
    assert is_owned(jobset, job)
    assert is_made_for(pod, job)
    observed = derive_gang_observation(derive_gang(job.spec), jobset, [pod])
    assert [(host.name, host.node) for host in observed.hosts] == [("new-a1-slice-0-0-abcde", "fake-1")]


def test_a_pod_is_collected_with_the_jobset_and_that_with_the_job(copied: tuple[Manifest, ...]) -> None:
    _job, jobset, pod = copied
    owners = [manifest["metadata"]["ownerReferences"] for manifest in (jobset, pod)]
    assert [[(o["kind"], o["name"], o["uid"]) for o in owner] for owner in owners] == [
        [("FrayJob", "new", "job")],
        [("JobSet", "new-a1", "jobset")],
    ]
    assert jobset["spec"]["managedBy"] == "fray.test/nobody"


def test_times_are_as_much_later_as_the_copy_is(copied: tuple[Manifest, ...]) -> None:
    job, _jobset, pod = copied
    assert job["status"]["attempts"][0]["runningTime"] == "2026-01-02T00:00:10.500Z"
    assert pod["status"]["startTime"] == "2026-01-02T00:00:04Z"


def test_a_job_is_created_without_a_status() -> None:
    assert build_job(ORIGINAL, "new") == {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {"name": "new", "namespace": "many", "labels": {}},
        "spec": {"entrypoint": {"command": ["true"]}},
        "status": {},
    }

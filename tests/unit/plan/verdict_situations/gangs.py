"""Hosts that end at different times, and pods of other gangs that carry the same names."""

from __future__ import annotations

from typing import Any

from fray.vocabulary import LABEL_JOBSET_UID, Reason, VerdictKind
from tests.unit.plan.verdict_situations.manifests import evicted_mark, exited, jobset, pod, running
from tests.unit.plan.verdict_situations.situation import (
    E2E,
    JOBSET,
    KUBERNETES,
    PAIR,
    SINGLE,
    Manifest,
    Scene,
    Situation,
)

__all__ = ["SITUATIONS"]

INDEXED = KUBERNETES + "pkg/controller/job/indexed_job_utils.go"
SUSPENSION = JOBSET + "pkg/controllers/jobset_controller.go"
OOM = exited(137, reason="OOMKilled")
HOUR = 3600
FIRST_DONE = Scene(1, (pod(0, "Succeeded", exited(0)), pod(1, "Running", running())), jobset=jobset())


def stale(manifest: Manifest) -> Manifest:
    """Return a pod as one of an earlier JobSet of the same name, which was deleted."""
    metadata: Any = manifest["metadata"]
    labels = metadata["labels"] | {LABEL_JOBSET_UID: "0d9c6b5e-0000-4c7b-9c51-0a4c2f0e9b11"}
    return {**manifest, "metadata": {**metadata, "labels": labels}}


def completed(name: str, source: str, *scenes: Scene, says: str, **more: Any) -> Situation:
    return Situation(
        name,
        source,
        scenes,
        Reason.COMPLETED,
        VerdictKind.SUCCESS,
        (says,),
        first=None,
        within=HOUR + 10,
        **more,
    )


SITUATIONS = (
    completed(
        "a host exits with 0 an hour before its peer does",
        INDEXED,
        FIRST_DONE,
        Scene(
            HOUR,
            (pod(0, "Succeeded", exited(0)), pod(1, "Succeeded", exited(0, after=HOUR))),
            jobset=jobset("Completed"),
        ),
        says="all 2 hosts exited with code 0",
        shape=PAIR,
    ),
    completed(
        "a host exits with 0 and its pod is removed while its peer still runs",
        INDEXED,
        FIRST_DONE,
        Scene(
            60,
            (pod(1, "Running", running()),),
            jobset=jobset(),
            gone=(pod(0, "Succeeded", exited(0)),),
        ),
        Scene(HOUR, (pod(1, "Succeeded", exited(0, after=HOUR)),), jobset=jobset("Completed")),
        says="all 2 hosts exited with code 0",
        shape=PAIR,
    ),
    Situation(
        "a host exits with 0, and its peer is drained an hour later",
        INDEXED,
        (
            FIRST_DONE,
            Scene(
                HOUR + 1,
                (
                    pod(0, "Succeeded", exited(0)),
                    pod(1, "Failed", exited(143, after=HOUR), evicted_mark(after=HOUR), deleted=HOUR),
                ),
            ),
        ),
        Reason.DISRUPTED,
        VerdictKind.PREEMPTION,
        ("rank 1 (slice 0, host 1) was taken away",),
        first=1,
        code=143,
        shape=PAIR,
        within=HOUR + 10,
    ),
    Situation(
        "a host exits with 0, and its peer fails an hour later",
        INDEXED,
        (
            FIRST_DONE,
            Scene(HOUR + 1, (pod(0, "Succeeded", exited(0)), pod(1, "Failed", exited(3, after=HOUR)))),
        ),
        Reason.NON_ZERO_EXIT,
        VerdictKind.FAILURE,
        ("rank 1 (slice 0, host 1) exited with code 3",),
        first=1,
        code=3,
        shape=PAIR,
        within=HOUR + 10,
    ),
    completed(
        "pods of a deleted JobSet of the same name have failed, and haven't gone yet",
        E2E + "test_taken_away.py",
        Scene(
            1,
            (pod(0, "Running", running()), stale(pod(0, "Failed", OOM, made=-10))),
            jobset=jobset(),
            gone=(stale(pod(0, "Failed", exited(1), evicted_mark(), deleted=0, made=-10)),),
        ),
        Scene(HOUR, (pod(0, "Succeeded", exited(0, after=HOUR)),), jobset=jobset("Completed")),
        says="the host exited with code 0",
        shape=SINGLE,
    ),
    Situation(
        "a host runs out of memory, and its JobSet is suspended before anybody looks",
        SUSPENSION,
        (
            Scene(1, (pod(0, "Failed", OOM, deleted=1),), jobset=jobset(suspended=True)),
            Scene(5, (), jobset=None),
        ),
        Reason.SUSPENDED,
        VerdictKind.SUSPENDED,
        ("its JobSet was suspended",),
        first=None,
    ),
    Situation(
        "a host runs out of memory an instant after its peer was marked",
        KUBERNETES + "pkg/registry/core/pod/storage/eviction.go",
        (
            Scene(
                1,
                (
                    pod(0, "Running", running(), evicted_mark(after=-1), deleted=-1),
                    pod(1, "Failed", OOM),
                ),
            ),
            Scene(
                3,
                (
                    pod(0, "Failed", exited(143, after=2), evicted_mark(after=-1), deleted=-1),
                    pod(1, "Failed", OOM),
                ),
            ),
        ),
        Reason.OUT_OF_MEMORY,
        VerdictKind.FAILURE,
        ("rank 1 (slice 0, host 1) ran out of memory",),
        first=1,
        code=137,
        shape=PAIR,
    ),
)

"""FrayJobs that another version wrote: told, counted, left alone, and in nobody's way."""

from __future__ import annotations

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import EVENTS, FRAYJOBS, JOBSETS
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.testing.memory import Call, MemoryServer
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (frayjob("newer", reason="NodeMelted"), "doesn't know the reason 'NodeMelted' of attempt 1"),
        (
            frayjob("newer", reason="Completed", verdict="Maintenance", endTime=LONG_AGO),
            "doesn't know the verdict 'Maintenance' of attempt 1",
        ),
        (frayjob("newer", spec={"replicas": {"min": 1}}), "is the CRD newer than the operator?"),
        (
            frayjob("newer", runningTime="banana", spec={"timeouts": {"activeSeconds": 3600}}),
            "status.attempts[0].runningTime is 'banana', which is no time",
        ),
        (
            frayjob("newer", verdict="Failure", reason="NonZeroExit", endTime="9999-12-31T23:59:59Z"),
            "status.attempts[0].endTime is '9999-12-31T23:59:59Z', which is no time",
        ),
    ],
    ids=["reason", "verdict", "spec", "time", "end of time"],
)
def test_a_job_that_a_newer_version_wrote_is_left_alone_until_it_changes(
    body: Manifest, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    def check(server: MemoryServer, metrics: Metrics, queue: WorkQueue[Key]) -> None:
        # Why, where there is a status to say it in.
        status, event = Call("PUT", FRAYJOBS, "newer"), Call("POST", EVENTS, "newer")
        written = [Call(call.method, call.resource, "newer") for call in server.writes]
        assert written in ([], [status, event])
        assert (passes(metrics, "unreadable"), passes(metrics, "error")) == (1, 0)
        assert len(queue) == 0

    reconcile_for_an_hour([body], check)
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert line.startswith("the object is left alone until it changes: ")
    assert told in line


def test_the_other_jobs_go_on() -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert server.find(JOBSETS, "plain-a1") is not None
        assert server.find(JOBSETS, "newer-a1") is None
        assert passes(metrics, "unreadable") == 1

    reconcile_for_an_hour([frayjob("newer", reason="NodeMelted"), frayjob("plain")], check)


@pytest.mark.parametrize(
    "ended",
    [{"reason": "NodeMelted"}, {"reason": "Completed", "verdict": "Maintenance"}],
    ids=["reason", "verdict"],
)
@pytest.mark.parametrize(("wish", "phase"), [("stopped", "Stopped"), ("suspend", "Suspended")])
def test_it_can_be_stopped_and_suspended(ended: Manifest, wish: str, phase: str) -> None:
    """The pod keeps its chips no longer than its user wants."""

    def begin(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        job = FrayJob.from_manifest(server.find(FRAYJOBS, "newer") or {})
        jobset = server.store(JOBSETS, build_attempt(job, attempt=1, settings=PlanSettings()).jobset)
        jobsets.remember(jobset)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        left = server.find(JOBSETS, "newer-a1")
        assert left is None or "deletionTimestamp" in left["metadata"]
        body = server.find(FRAYJOBS, "newer") or {}
        if left is None:
            assert body["status"]["phase"] == phase
        (readable,) = [c for c in body["status"]["conditions"] if c["type"] == "StatusReadable"]
        assert readable["status"] == "False"
        assert body["status"]["attempts"][0]["reason"] == ended["reason"]
        assert passes(metrics, "error") == 0

    end = {"endTime": LONG_AGO} if "verdict" in ended else {}
    body = frayjob("newer", spec={wish: True}, **ended, **end)
    reconcile_for_an_hour([body], check, prepare=begin)

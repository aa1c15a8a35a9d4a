"""FrayJobs that another version wrote: told, counted, left alone, and in nobody's way."""

from __future__ import annotations

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import JOBSETS
from fray_operator.informer import JobKey
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour
from tests.unit.controller.memory_server import MemoryServer


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
            frayjob("newer", runningTime="banana", spec={"timeouts": {"active": "1h"}}),
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
    def check(server: MemoryServer, metrics: Metrics, queue: WorkQueue[JobKey]) -> None:
        assert server.writes == []
        assert (passes(metrics, "unreadable"), passes(metrics, "error")) == (1, 0)
        assert len(queue) == 0

    reconcile_for_an_hour([body], check)
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert line.startswith("the job is left alone until it changes: ")
    assert told in line


def test_the_other_jobs_go_on() -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[JobKey]) -> None:
        assert server.find(JOBSETS, "plain-a1") is not None
        assert server.find(JOBSETS, "newer-a1") is None
        assert passes(metrics, "unreadable") == 1

    reconcile_for_an_hour([frayjob("newer", reason="NodeMelted"), frayjob("plain")], check)

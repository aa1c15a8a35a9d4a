"""JobSets that are there, but not where they are looked for first: found, adopted, asked for in no loop."""

from __future__ import annotations

from collections import Counter

import pytest

from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBSETS
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.testing.memory import MemoryServer
from fray.vocabulary import LABEL_JOB
from fray.wire.frayjob import FrayJob
from fray_operator.informer import Informer
from fray_operator.kinds import Key
from fray_operator.metrics import Metrics
from fray_operator.queue import WorkQueue
from tests.unit.controller.an_hour import LONG_AGO, frayjob, passes, reconcile_for_an_hour

MOST_PASSES = 1000
"""More than one every 5 seconds, which is how often a JobSet without pods is looked at first."""


def jobset_of(server: MemoryServer, *, labelled: bool = True) -> Manifest:
    """Return the JobSet of the first attempt of the FrayJob `train`, stored."""
    body = server.find(FRAYJOBS, "train")
    assert body is not None
    manifest = build_attempt(FrayJob.from_manifest(body), attempt=1, settings=PlanSettings()).jobset
    if not labelled:
        del manifest["metadata"]["labels"][LABEL_JOB]
    return server.store(JOBSETS, manifest)


def calls(server: MemoryServer) -> Counter[str]:
    return Counter(call.method for call in server.calls if call.resource is JOBSETS)


@pytest.mark.parametrize("cached", [True, False])
def test_a_jobset_of_this_versions_name_is_adopted_when_the_status_names_another(*, cached: bool) -> None:
    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        made = jobset_of(server)
        if cached:
            jobsets.remember(made)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        assert job["status"]["attempts"][0]["jobSet"] == "train-a1"
        # The other name, this name's creation, what is there.
        assert calls(server) == ({} if cached else {"GET": 2, "POST": 1})
        assert passes(metrics, "error") == 0
        assert 2 < passes(metrics, "done") < MOST_PASSES

    reconcile_for_an_hour([frayjob("train", jobSet="train-x1")], check, prepare=prepare)


def test_a_job_that_runs_is_stopped_although_its_jobset_lost_the_label() -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert calls(server)["DELETE"] >= 1
        assert passes(metrics, "error") == 0

    job = frayjob("train", spec={"stopped": True}, runningTime=LONG_AGO)
    reconcile_for_an_hour([job], check, prepare=lambda server, *_: bool(jobset_of(server, labelled=False)))


def test_a_jobset_that_lost_the_label_while_its_job_starts_is_found_by_its_owner() -> None:
    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert calls(server)["POST"] == 1
        assert calls(server)["GET"] < MOST_PASSES
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour(
        [frayjob("train", jobSet="train-a1")],
        check,
        prepare=lambda server, *_: bool(jobset_of(server, labelled=False)),
    )


def test_a_jobset_without_label_or_owner_is_not_this_jobs() -> None:
    def prepare(server: MemoryServer, *_: Informer) -> None:
        server.store(JOBSETS, {"metadata": {"name": "train-a1", "namespace": "default"}, "spec": {}})

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        assert calls(server)["DELETE"] == 0
        assert passes(metrics, "error") == 0

    reconcile_for_an_hour([frayjob("train", runningTime=LONG_AGO)], check, prepare=prepare)


def test_what_is_known_of_a_jobset_that_lost_the_label_is_read_anew_each_time() -> None:
    def prepare(server: MemoryServer, jobsets: Informer, _: Informer) -> None:
        gone = jobset_of(server, labelled=False)
        gone["metadata"]["name"] = "train-a1-gone"  # as if it was deleted, which no watch told
        jobsets.remember(gone)

    def check(server: MemoryServer, metrics: Metrics, _: WorkQueue[Key]) -> None:
        job = server.find(FRAYJOBS, "train")
        assert job is not None
        assert job["status"]["attempts"][0]["reason"] == "HostsGone"
        assert passes(metrics, "error") == 0

    job = frayjob("train", jobSet="train-a1-gone", runningTime=LONG_AGO)
    reconcile_for_an_hour([job], check, prepare=prepare)

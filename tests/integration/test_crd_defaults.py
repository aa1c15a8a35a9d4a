"""What the API server stores is what Python means: defaults, every field, status, names."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fray.wire.frayjob import FrayJob, FrayJobSpec
from fray.wire.model import prune_default
from tests.integration.frayjobs import FrayJobs
from tests.manifests.corpus import good_manifests

GOOD = {case.name: case.manifest for case in good_manifests()}


def in_full(spec: FrayJobSpec) -> Any:
    """A spec with its defaults, and without what is unset or empty."""
    return prune_default(spec.model_dump(mode="json", by_alias=True))


def test_the_api_server_fills_in_the_same_defaults_as_python(frayjobs: FrayJobs) -> None:
    for name in ("minimal", "workers-none-yet", "gpu-default-count"):
        stored = frayjobs.created(GOOD[name])
        assert stored["spec"] == in_full(FrayJob.from_manifest(GOOD[name]).spec)


def test_every_field_comes_back_as_it_was_written(frayjobs: FrayJobs) -> None:
    manifest = GOOD["maximal"]
    stored = frayjobs.created(manifest)
    assert stored["spec"] == manifest["spec"]
    read = FrayJob.from_manifest(stored)
    assert read.to_manifest()["spec"] == manifest["spec"]
    assert read.spec == FrayJob.from_manifest(manifest).spec


def test_what_python_writes_is_taken_and_reads_the_same(frayjobs: FrayJobs) -> None:
    for case in good_manifests():
        job = FrayJob.from_manifest(case.manifest)
        stored = frayjobs.created(job.to_manifest())
        assert FrayJob.from_manifest(stored).spec == job.spec, case.name


def test_server_side_apply_takes_what_create_takes(frayjobs: FrayJobs) -> None:
    for name in ("maximal", "minimal", "tpu-multislice"):
        manifest = GOOD[name]
        path = frayjobs.path(manifest["metadata"]["name"])
        first = frayjobs.api.apply(path, manifest, field_manager="test")
        again = frayjobs.api.apply(path, manifest, field_manager="test")
        assert (first.status, again.status) == (201, 200)
        assert again.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]


def test_nulls_of_an_overlay_stay_since_they_remove_fields(frayjobs: FrayJobs) -> None:
    stored = frayjobs.created(GOOD["pod-template"])
    assert stored["spec"]["podTemplate"] == GOOD["pod-template"]["spec"]["podTemplate"]


def test_a_generated_name_is_judged_when_it_is_made(frayjobs: FrayJobs) -> None:
    manifest = {**GOOD["minimal"], "metadata": {"generateName": "sweep-"}}
    assert frayjobs.created(manifest)["metadata"]["name"].startswith("sweep-")
    manifest = {**GOOD["minimal"], "metadata": {"generateName": "sweep.1-"}}
    assert frayjobs.create(manifest).status == 422


def test_status_is_written_only_through_its_subresource(frayjobs: FrayJobs) -> None:
    status = {
        "phase": "Running",
        "attempt": 2,
        "reason": "AllHostsRunning",
        "observedGeneration": 1,
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            {
                "type": "Running",
                "status": "True",
                "reason": "AllHostsRunning",
                "message": "All 4 hosts run.",
                "lastTransitionTime": "2026-01-01T00:00:09Z",
            }
        ],
        "replicas": {"total": 4, "running": 4},
        "workers": {"desired": 3, "replicas": 2, "ready": 1, "selector": "fray.dev/job=minimal"},
        "attempts": [{"number": 1, "verdict": "Preemption", "exitCode": 143}, {"number": 2}],
        "avoidedNodes": [{"node": "n1", "until": "2026-01-01T01:00:00Z", "reason": "Spot"}],
        "retries": {"preemptionsUsed": 1},
    }
    stored = frayjobs.created({**GOOD["minimal"], "status": status})
    assert "status" not in stored

    written = frayjobs.api.put(frayjobs.path("minimal", "status"), {**stored, "status": status})
    assert written.status == 200, written.body
    assert written.body["status"] == status, "the API server must add nothing to what was observed"
    assert written.body["metadata"]["generation"] == stored["metadata"]["generation"]
    assert FrayJob.from_manifest(written.body).status.attempts[0].exit_code == 143

    changed = copy.deepcopy(written.body)
    changed["status"]["phase"] = "Failed"
    changed["spec"]["suspend"] = True
    replaced = frayjobs.replace(changed).body
    assert (replaced["status"]["phase"], replaced["spec"]["suspend"]) == ("Running", True)


@pytest.mark.parametrize(
    ("status", "path"),
    [
        ({"attempt": 0}, "status.attempt"),
        ({"attempts": [{"number": 0}]}, "status.attempts[0].number"),
        ({"attempts": [{"number": -12}]}, "status.attempts[0].number"),
        ({"retries": {"failuresUsed": -1}}, "status.retries.failuresUsed"),
    ],
)
def test_numbers_that_count_nothing_are_refused(
    frayjobs: FrayJobs, status: dict[str, Any], path: str
) -> None:
    stored = frayjobs.created(GOOD["minimal"])
    refused = frayjobs.api.put(frayjobs.path("minimal", "status"), {**stored, "status": status})
    assert refused.status == 422
    assert [cause["field"] for cause in refused.body["details"]["causes"]] == [path]


def test_attempts_beyond_the_ninth_are_taken(frayjobs: FrayJobs) -> None:
    stored = frayjobs.created(GOOD["minimal"])
    status = {"attempt": 112, "attempts": [{"number": number} for number in range(103, 113)]}
    written = frayjobs.api.put(frayjobs.path("minimal", "status"), {**stored, "status": status})
    assert written.body["status"] == status


def test_two_attempts_with_one_number_are_refused(frayjobs: FrayJobs) -> None:
    stored = frayjobs.created(GOOD["minimal"])
    status = {"attempts": [{"number": 1}, {"number": 1}]}
    refused = frayjobs.api.put(frayjobs.path("minimal", "status"), {**stored, "status": status})
    assert refused.status == 422

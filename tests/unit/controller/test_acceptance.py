"""What the API server accepts and can't be run is refused with its field, never ignored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fray.plan.acceptance import derive_unsupported
from fray.plan.lifecycle import StartAttempt, decide
from fray.plan.settings import RetryPolicy
from fray.plan.status import find_condition
from fray.testing import build_frayjob
from fray.vocabulary import ConditionType
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status


def unsupported(**spec: Any) -> tuple[str, str] | None:
    job = FrayJob.from_manifest(
        {"metadata": {"name": "train"}, "spec": {"entrypoint": {"command": ["train"]}, **spec}}
    )
    found = derive_unsupported(job)
    return None if found is None else (found.reason.value, found.message)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"workers": {"replicas": 0}},
        {"workers": {"maxReplicas": 4}},
        {"workers": {"replicas": 4, "maxReplicas": 0}},
        {"workers": {"replicas": 4, "minReplicas": 2, "maxReplicas": 9}},
        {"workers": {"engine": "ray"}},
        {"environment": {"image": "image", "env": [{"name": "A", "value": "b"}], "setup": ["true"]}},
        {"environment": {"pipPackages": ["a"], "extras": ["tpu"]}},
        {"environment": {"workspace": {"secretName": "code", "sha256": "0" * 64}}},
        {"queue": {"name": "team"}, "placement": {"spot": "Required"}, "retries": {"failures": 3}},
    ],
)
def test_what_is_built_is_accepted(spec: dict[str, Any]) -> None:
    assert unsupported(**spec) is None


@pytest.mark.parametrize(
    ("spec", "reason", "told"),
    [
        (
            {"workers": {"replicas": 1, "engine": "ray"}},
            "WorkersNotSupported",
            "set spec.workers.replicas and minReplicas to 0",
        ),
        ({"workers": {"minReplicas": 1, "engine": "ray"}}, "WorkersNotSupported", "use engine fray or dask"),
    ],
)
def test_what_is_not_is_refused(spec: dict[str, Any], reason: str, told: str) -> None:
    found = unsupported(**spec)
    assert found is not None
    assert found[0] == reason
    assert told in found[1]


def test_a_job_that_has_begun_goes_on_when_it_is_scaled() -> None:
    """`kubectl scale` asks for workers at any time; the next attempt starts all the same."""
    ended = AttemptStatus(
        number=1,
        job_set="train-a1",
        start_time="2026-01-31T12:00:00Z",
        end_time="2026-01-31T12:01:00Z",
        verdict="Preemption",
        reason="Disrupted",
        message="its node was taken back",
    )
    job = with_status(
        build_frayjob(workers={"replicas": 1, "engine": "ray"}), FrayJobStatus(attempts=[ended])
    )
    now = datetime(2026, 1, 31, 13, 0, tzinfo=UTC)
    decision = decide(job, None, now=now, policy=RetryPolicy(), unsupported=derive_unsupported(job))
    assert decision.action == StartAttempt(2)
    accepted = find_condition(decision.status, ConditionType.ACCEPTED)
    assert accepted is not None
    assert accepted.status == "True"
    assert "spec.workers.replicas is ignored" in accepted.message


NAMED = "must be a list of mappings, each with a name"
SPEC = "spec.podTemplate.spec"


@pytest.mark.parametrize(
    ("overlay", "told"),
    [
        ({"containers": "banana"}, f"{SPEC}.containers: {NAMED}"),
        ({"containers": [1]}, f"{SPEC}.containers[0]: must be a mapping with a name"),
        ({"containers": [{"image": "x"}]}, f"{SPEC}.containers[0].name: must be set: items are merged by it"),
        ({"volumes": [None]}, f"{SPEC}.volumes[0]: must be a mapping with a name"),
        (
            {"containers": [{"name": "main", "env": [{"name": 5}]}]},
            f"{SPEC}.containers[0].env[0].name: must be set: items are merged by it",
        ),
        (
            {"terminationGracePeriodSeconds": "abc"},
            f"{SPEC}.terminationGracePeriodSeconds: must be a whole number of seconds",
        ),
    ],
)
def test_a_pod_template_that_cant_be_merged_is_refused_by_field(overlay: dict[str, Any], told: str) -> None:
    assert unsupported(podTemplate={"spec": overlay}) == ("PodTemplateInvalid", told)


def test_so_is_that_of_workers() -> None:
    told = "spec.workers.podTemplate.spec.containers[0]: must be a mapping with a name"
    workers = {"podTemplate": {"spec": {"containers": [1]}}}
    assert unsupported(workers=workers) == ("PodTemplateInvalid", told)


def test_of_many_problems_the_first_are_told_and_the_others_counted() -> None:
    found = unsupported(podTemplate={"spec": {"containers": [1, 2, 3, 4], "volumes": [5, 6, 7]}})
    assert found is not None
    assert found[1].count("must be a mapping") == 5
    assert found[1].endswith("; and 2 more")

"""What the API server accepts and can't be run is refused with its field, never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from fray.plan.overlay import derive_unsupported
from fray.wire.frayjob import FrayJob


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
        {"workers": {"replicas": 2, "engine": "ray"}},
        {"workers": {"replicas": 2, "engine": "dask"}},
        {"environment": {"image": "image", "env": [{"name": "A", "value": "b"}], "setup": ["true"]}},
        {"environment": {"pipPackages": ["a"], "extras": ["tpu"]}},
        {"environment": {"workspace": {"secretName": "code", "sha256": "0" * 64}}},
        {"queue": {"name": "team"}, "placement": {"spot": "Required"}, "retries": {"failures": 3}},
    ],
)
def test_what_is_built_is_accepted(spec: dict[str, Any]) -> None:
    assert unsupported(**spec) is None


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

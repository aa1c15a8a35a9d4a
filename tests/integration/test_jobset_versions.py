"""The API server takes what Fray writes by the JobSet CRD of each version that is pinned.

A CRD's name says its group and kind, so that a server has one version of it. Here each version has a group of
its own; schemas and rules are the released ones.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import yaml

from e2e.cluster.api import Api, Response
from e2e.cluster.build import module_source
from tests.integration.frayjobs import CRD_COLLECTION, await_served
from tests.unit.plan.golden import actor_shapes, build_golden, build_golden_actor, shapes

CRD = "charts/jobset/crds/jobset.x-k8s.io_jobsets.yaml"


NEEDS_NEWER_SERVER = ("", "jobset-older")
"""Whose rule of `volumeClaimPolicies` the lowest API server can't read."""


def _create_crd(api: Api, skew: str) -> tuple[str, Response]:
    """Return the group of one version's JobSets, and the answer to its CRD."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FRAY_SKEW", skew)
        crd = yaml.safe_load((module_source("jobset") / CRD).read_text(encoding="utf-8"))
    group = f"{skew or 'pinned'}.jobset.test"
    crd["metadata"]["name"] = f"jobsets.{group}"
    crd["spec"]["group"] = group
    return group, api.post(CRD_COLLECTION, crd)


def _build_jobsets() -> dict[str, dict[str, Any]]:
    jobs = {shape: build_golden(shape).jobset for shape in shapes()}
    return jobs | {shape: build_golden_actor(shape) for shape in actor_shapes()}


def _create(api: Api, collection: str, jobset: dict[str, Any]) -> tuple[int, Any]:
    """Create a JobSet without keeping it; a field that the version doesn't know is refused."""
    group, version = collection.split("/")[2:4]
    metadata = {**jobset["metadata"], "namespace": "default"}
    asked = {**jobset, "apiVersion": f"{group}/{version}", "metadata": metadata}
    answer = api.request("POST", collection, asked, query={"dryRun": "All", "fieldValidation": "Strict"})
    return answer.status, answer.body


@pytest.mark.parametrize("skew", ["", "jobset-older", "jobset-lowest"], ids=lambda skew: skew or "pinned")
def test_every_golden_jobset_is_taken_and_no_field_of_it_is_unknown(skew: str, api: Api) -> None:
    group, created = _create_crd(api, skew)
    if "lowest" in os.environ.get("FRAY_SKEW", "").split(",") and skew in NEEDS_NEWER_SERVER:
        assert created.status == 422
        assert "properties[volumeClaimPolicies].items.x-kubernetes-validations" in created.body["message"]
        return
    assert created.status == 201, created.body
    await_served(api, f"{CRD_COLLECTION}/jobsets.{group}")
    collection = f"/apis/{group}/v1alpha2/namespaces/default/jobsets"
    answers = {shape: _create(api, collection, jobset) for shape, jobset in _build_jobsets().items()}
    assert {shape: body for shape, (status, body) in answers.items() if status != 201} == {}
    assert answers

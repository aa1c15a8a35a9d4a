"""The API server takes the Job of a job's workers, and changes of its size."""

from __future__ import annotations

import pytest

from tests.integration.frayjobs import FrayJobs
from tests.unit.plan.golden import build_golden_workers, shapes

SHAPES = [shape for shape in shapes() if build_golden_workers(shape) is not None]


@pytest.mark.parametrize("shape", SHAPES)
def test_workers_are_taken_and_resized(shape: str, frayjobs: FrayJobs) -> None:
    manifest = build_golden_workers(shape)
    assert manifest is not None
    namespace = frayjobs.namespace
    manifest["metadata"]["namespace"] = namespace
    collection = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    created = frayjobs.api.request("POST", collection, manifest, query={"fieldValidation": "Strict"})
    assert created.status == 201, created.body
    path = f"{collection}/{manifest['metadata']['name']}"
    for size in (7, 1, 0):
        found = frayjobs.api.get(path).body
        found["spec"] |= {"completions": size, "parallelism": size}
        resized = frayjobs.api.put(path, found)
        assert resized.status == 200, resized.body

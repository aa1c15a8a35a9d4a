"""Endpoints of jobs: found by a name as long as the job lives that registered it."""

from __future__ import annotations

import pytest

from fray.errors import EndpointNotFoundError
from fray.job import Endpoint, lookup_endpoint, register_endpoint
from tests.actors.cluster import Cluster


def test_an_endpoint_is_found_until_its_job_has_ended(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EndpointNotFoundError, match="no job of this root"):
        lookup_endpoint("metrics")
    register_endpoint("metrics", "10.0.0.7:9000")
    register_endpoint("metrics", "10.0.0.8:9000", {"version": "3"})
    assert lookup_endpoint("metrics") == Endpoint("metrics", "10.0.0.8:9000", {"version": "3"})

    cluster.api.set_status("train", conditions=[{"type": "Finished", "status": "True"}])
    with pytest.raises(EndpointNotFoundError, match="'train', which registered it, has ended"):
        lookup_endpoint("metrics")
    monkeypatch.delenv("FRAY_ROOT_JOB")
    with pytest.raises(EndpointNotFoundError, match="of no job"):
        register_endpoint("metrics", "10.0.0.8:9000")

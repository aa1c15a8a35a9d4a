"""Workload policies at Compute Engine, through Google's authorized session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fray.errors import GkeCredentialsError, NodePoolError
from fray.nodepools.bodies import GkeCluster
from fray.nodepools.compute import Compute, open_session
from fray.nodepools.requests import WorkloadPolicy
from tests.gke.compute import ComputeAdapter, open_fake_session
from tests.gke.server import FakeGke

POLICY = WorkloadPolicy("tpu7x-2x2x2", "2x2x2")


@pytest.fixture
def adapter() -> Iterator[ComputeAdapter]:
    with FakeGke(location="us-east5-a") as fake:
        yield ComputeAdapter(fake)


def build_compute(adapter: ComputeAdapter) -> Compute:
    cluster = GkeCluster.parse(adapter.gke.path)
    return Compute(cluster, open_fake_session(adapter.gke, adapter), sleep=adapter.gke.clock.sleep)


def test_a_policy_is_made_once_and_its_operation_followed(adapter: ComputeAdapter) -> None:
    compute = build_compute(adapter)
    assert compute.ensure_policy(POLICY)
    wanted = {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x2x2"}
    assert adapter.gke.policies == {"tpu7x-2x2x2": wanted}
    assert adapter.gke.clock.now == 4.0
    assert not compute.ensure_policy(POLICY)
    assert [call.split()[0] for call in adapter.calls] == ["GET", "POST", "GET", "GET", "GET"]
    assert "/regions/us-east5/" in adapter.calls[0]


def test_a_policy_of_another_topology_is_told_and_kept(adapter: ComputeAdapter) -> None:
    adapter.gke.policies["tpu7x-2x2x2"] = {"acceleratorTopology": "4x4x4"}
    with pytest.raises(NodePoolError, match=r"there with topology 4x4x4 in mode AUTO_CONNECT, not 2x2x2 in"):
        build_compute(adapter).ensure_policy(POLICY)


def test_a_policy_that_connects_chips_is_none_for_dynamic_slices(adapter: ComputeAdapter) -> None:
    compute, cube = build_compute(adapter), WorkloadPolicy("cube", "4x4x4", "PROVISION_ONLY")
    assert compute.ensure_policy(cube)
    assert adapter.gke.policies["cube"]["acceleratorTopologyMode"] == "PROVISION_ONLY"
    assert not compute.ensure_policy(cube)
    with pytest.raises(NodePoolError, match=r"4x4x4 in mode PROVISION_ONLY, not 4x4x4 in mode AUTO_CONNECT"):
        compute.ensure_policy(WorkloadPolicy("cube", "4x4x4"))


def test_a_policy_that_somebody_else_makes_meanwhile_will_do(adapter: ComputeAdapter) -> None:
    adapter.scripted = [(404, {"error": {}}), (409, {"error": {"message": "already exists"}})]
    assert not build_compute(adapter).ensure_policy(POLICY)


@pytest.mark.parametrize(
    ("answer", "reason", "retry"),
    [
        (
            (403, {"error": {"message": "Required 'compute.resourcePolicies.create' permission"}}),
            "PermissionDenied",
            "never",
        ),
        (
            (403, {"error": {"message": "Quota 'WORKLOAD_POLICIES' exceeded. Limit: 5.0"}}),
            "QuotaExceeded",
            "later",
        ),
        ((429, {"error": {"message": "slow down"}}), "TooManyRequests", "later"),
        ((500, "<html>oops"), "Unavailable", "soon"),
        ((502, {"error": "x"}), "Unavailable", "soon"),
        ((200, "[1]"), "Unavailable", "soon"),
        (
            (200, {"status": "DONE", "error": {"errors": [{"code": "X", "message": "broken"}]}}),
            "Refused",
            "later",
        ),
    ],
)
def test_what_it_says_is_explained(adapter: ComputeAdapter, answer: Any, reason: str, retry: str) -> None:
    adapter.scripted = [(404, {"error": {}}), answer]
    with pytest.raises(NodePoolError) as refused:
        build_compute(adapter).ensure_policy(POLICY)
    assert (refused.value.reason, refused.value.retry) == (reason, retry)
    assert (reason == "PermissionDenied") == ("compute.resourcePolicies.create" in refused.value.sentence)
    assert refused.value.subject == "workload policy tpu7x-2x2x2"


def test_an_operation_without_end_is_given_up(adapter: ComputeAdapter) -> None:
    adapter.scripted = [(404, {"error": {}}), *[(200, {"name": "o", "status": "RUNNING"})] * 61]
    with pytest.raises(NodePoolError, match="no end of the operation"):
        build_compute(adapter).ensure_policy(POLICY)


def test_missing_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/none.json")
    with pytest.raises(GkeCredentialsError, match="application-default login"):
        open_session()

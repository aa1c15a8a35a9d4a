"""An operator serves the namespaces that it is told to, or all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_subprocess import fetch
from tests.integration.controller.operator_thread import run_operator


def live(hands: Hands) -> None:
    """Run a job to its good end."""
    hands.submit("train")
    jobset = hands.await_jobset("train-a1")
    (pod,) = hands.run_all(jobset)
    hands.await_phase("train", "Running")
    hands.exit(pod, 0)
    hands.complete(jobset)
    hands.await_phase("train", "Succeeded")


@pytest.fixture
def unclaimed(new_hands: Callable[[], Hands]) -> None:
    """No namespace is claimed any more by an operator that an earlier test has killed."""
    api = new_hands().api
    leases = "/apis/coordination.k8s.io/v1"
    for lease in api.get(f"{leases}/leases", fieldSelector="metadata.name=fray-scope").body["items"]:
        assert api.delete(f"{leases}/namespaces/{lease['metadata']['namespace']}/leases/fray-scope").ok


@pytest.mark.usefixtures("unclaimed")
@pytest.mark.parametrize("scope", ["some", "all"])
def test_jobs_of_one_name_in_several_namespaces_are_kept_apart(
    scope: str, kubeconfig: Path, new_hands: Callable[[], Hands], settings_for: SettingsFor
) -> None:
    first, second = new_hands(), new_hands()
    namespaces = (first.namespace, second.namespace) if scope == "some" else ()
    with run_operator(kubeconfig, settings_for(first.namespace, namespaces=namespaces)):
        second.submit("train", suspend=True)
        live(first)
        second.await_phase("train", "Suspended")
        assert second.list(second.jobsets) == []


def test_other_namespaces_are_left_alone(
    kubeconfig: Path, new_hands: Callable[[], Hands], settings_for: SettingsFor
) -> None:
    served, other = new_hands(), new_hands()
    with run_operator(kubeconfig, settings_for(served.namespace)):
        other.submit("train")
        live(served)
    assert "status" not in other.job("train")
    assert other.list(other.jobsets) == []


def test_an_installation_whose_scope_overlaps_says_so_and_does_nothing_until_it_is_alone(
    kubeconfig: Path,
    new_hands: Callable[[], Hands],
    settings_for: SettingsFor,
    new_port: Callable[[], int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    both, other = new_hands(), new_hands()
    told = f"namespace {both.namespace} is served by the installation in namespace {both.namespace} already"
    port = new_port()
    second = settings_for(
        other.namespace, namespaces=(other.namespace, both.namespace), lease_seconds=60.0, http_port=port
    )
    with run_operator(kubeconfig, settings_for(both.namespace)) as first:
        live(both)
        with run_operator(kubeconfig, second):
            eventually(lambda: fetch(port, "/readyz") == (503, told), told=lambda: fetch(port, "/readyz"))
            assert fetch(port, "/healthz") == (200, "ok")
            assert f"{told}: this installation does nothing while that is so" in caplog.text
            other.submit("train")
            both.submit("later")
            both.await_jobset("later-a1")
            assert "status" not in other.job("train")
            first.stop()
            other.await_jobset("train-a1")
            assert fetch(port, "/readyz") == (200, "ok")

"""What the command says where a cluster can't be used: what is wrong, and what to do next."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.api import Api
from e2e.cluster.build import CONTROL_PLANE, build
from e2e.cluster.controlplane import ControlPlane
from tests.integration.cli.conftest import Command
from tests.integration.cluster.test_access import JOBS, kubeconfig_of, make_account
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_thread import run_operator
from tests.local.harness import job_manifest

LEASES = "/apis/coordination.k8s.io/v1"


@pytest.fixture(scope="module")
def bare() -> Iterator[ControlPlane]:
    """A cluster on which nothing was installed."""
    with ControlPlane(build(CONTROL_PLANE)) as running:
        yield running


def checks(fray: Command, *options: str, code: int, **variables: str) -> dict[str, Any]:
    """Return what `fray doctor` finds, by subject."""
    result = fray.run("doctor", "-o", "json", *options, env=variables)
    assert result.code == code, result
    return {check["subject"]: check for check in json.loads(result.out)["checks"]}


def test_a_cluster_without_fray(fray: Command, bare: ControlPlane) -> None:
    variables = {"KUBECONFIG": str(bare.kubeconfig), "FRAY_CLUSTER_SPEC": "k8s"}
    for arguments in (["list"], ["run", "-d", "--", "train"], ["wait", "train"]):
        told = fray.run(*arguments, env=variables)
        assert told.code == 1, told
        assert "has no frayjobs.fray.dev: Fray isn't installed there" in told.err
        assert "helm install fray charts/fray" in told.err
    found = checks(fray, code=1, **variables)
    for subject, step in (("Fray's CRDs", "helm install fray"), ("JobSet", "helm install jobset")):
        assert found[subject]["mark"] == "wrong", found
        assert step in found[subject]["nextStep"]
    assert found["operator"]["seen"] == "no operator has ever held its Lease"
    assert found["service account of jobs"]["mark"] == "wrong"
    assert (found["namespace"]["mark"], found["clock"]["mark"]) == ("ok", "ok")
    assert found["may use frayjobs.fray.dev"]["mark"] == "ok"
    missing = checks(fray, "-n", "nowhere", code=1, **variables)
    assert "kubectl create namespace nowhere" in missing["namespace"]["nextStep"]


def test_an_account_that_may_not(
    fray: Command, control_plane: ControlPlane, api: Api, hands: Hands, tmp_path: Path
) -> None:
    token = make_account(api, hands.namespace, {**JOBS, "verbs": ["get", "list", "watch"]})
    variables = {"KUBECONFIG": str(kubeconfig_of(control_plane, token, tmp_path / "user"))}
    # The server knows of rights a moment after they were written.
    eventually(lambda: fray.run("list", env=variables).code == 0)
    told = fray.run("run", "-f", fray.write_job(job_manifest("train")), env=variables)
    assert told.code == 1
    account = f"system:serviceaccount:{hands.namespace}:user"
    assert f"{account!r} may not create frayjobs.fray.dev in namespace {hands.namespace!r}" in told.err
    assert f"--serviceaccount={hands.namespace}:user" in told.err
    found = checks(fray, code=1, **variables)
    assert account in found["API server"]["seen"]
    jobs = found["may use frayjobs.fray.dev"]
    assert (jobs["mark"], "may not create, update, patch, delete" in jobs["seen"]) == ("wrong", True)
    assert "kubectl create rolebinding" in jobs["nextStep"]
    assert found["may use pods/log"]["mark"] == "wrong"
    # What such an account can't see isn't wrong.
    for subject in ("operator", "namespace", "accelerators", "default image"):
        assert found[subject]["mark"] == "unknown", found


def leads(hands: Hands, pod: str) -> bool:
    """Return whether the operator of a pod holds the Lease of its namespace."""
    lease = hands.api.get(f"{LEASES}/namespaces/{hands.namespace}/leases/fray-operator")
    return lease.ok and str(lease.body["spec"].get("holderIdentity")).startswith(f"{pod}_")


def test_a_cluster_in_order(fray: Command, hands: Hands, kubeconfig: Path, settings_for: SettingsFor) -> None:
    assert hands.api.post(f"{hands.core}/serviceaccounts", {"metadata": {"name": "fray-job"}}).ok
    tpu = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
        "cloud.google.com/gke-tpu-topology": "2x2x1",
        "cloud.google.com/gke-accelerator-count": "4",
    }
    # Operators that other tests killed still hold theirs.
    for lease in hands.list(f"{LEASES}/leases"):
        if lease["metadata"]["name"] == "fray-operator":
            path = f"{LEASES}/namespaces/{lease['metadata']['namespace']}/leases/fray-operator"
            assert hands.api.delete(path).ok
    node = f"{hands.namespace}-tpu"
    assert hands.api.post("/api/v1/nodes", {"metadata": {"name": node, "labels": tpu}}).ok
    label = {"app.kubernetes.io/name": "jobset"}
    pod = {"containers": [{"name": "controller", "image": "registry.k8s.io/jobset/jobset:v0.12.0"}]}
    controller = {
        "metadata": {"name": "jobset-controller", "labels": label},
        "spec": {
            "selector": {"matchLabels": label},
            "template": {"metadata": {"labels": label}, "spec": pod},
        },
    }
    assert hands.api.post(f"/apis/apps/v1/namespaces/{hands.namespace}/deployments", controller).ok
    options = {"lease_name": "fray-operator", "pod_name": "the-operator"}
    try:
        with run_operator(kubeconfig, settings_for(hands.namespace, **options)):
            eventually(lambda: leads(hands, "the-operator"))
            found = checks(fray, code=0)
            table = fray.run("doctor")
    finally:
        assert hands.api.delete(f"/api/v1/nodes/{node}").ok
    assert {check["mark"] for check in found.values()} == {"ok", "unknown"}
    assert found["operator"]["seen"].startswith(f"the-operator in namespace {hands.namespace} leads,")
    assert found["JobSet"]["seen"] == "jobset.x-k8s.io/v1alpha2 is served, v0.12.0"
    assert "tpu-v5p-slice 2x2x1 (4 chips): 1 node" in found["accelerators"]["seen"]
    assert found["default image"]["mark"] == "unknown"  # there is no Deployment that would tell
    assert table.out.splitlines()[-1] == "nothing is wrong, 1 can't be seen"
    # Now it has ended, and says so.
    assert "the last one has ended" in checks(fray, code=1)["operator"]["seen"]


def test_a_server_that_is_not_there(fray: Command, control_plane: ControlPlane, tmp_path: Path) -> None:
    path = kubeconfig_of(control_plane, "x", tmp_path / "nowhere", url="https://127.0.0.1:9")
    variables = {"KUBECONFIG": str(path)}
    told = fray.run("list", env=variables)
    assert told.code == 1
    assert "no answer from the Kubernetes API server https://127.0.0.1:9" in told.err
    assert "kubectl version" in told.err
    found = checks(fray, code=1, **variables)
    assert set(found) == {"API server"}


def test_a_server_that_is_silent(fray: Command, control_plane: ControlPlane, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        variables = {"KUBECONFIG": str(kubeconfig_of(control_plane, "x", tmp_path / "silent", url=url))}
        waiting = fray.start("list", env=variables)
        assert waiting.stderr is not None
        assert b"still trying" in waiting.stderr.readline()
        waiting.kill()
        found = checks(fray, code=1, **variables)
    assert "is silent for 10 s" in found["API server"]["seen"]


def test_credentials_that_are_not_accepted(
    fray: Command, control_plane: ControlPlane, tmp_path: Path
) -> None:
    path = kubeconfig_of(control_plane, "nonsense", tmp_path / "user")
    found = checks(fray, code=1, KUBECONFIG=str(path))
    assert "log in to the cluster again" in found["access"]["nextStep"]


def test_nothing_that_leads_to_a_cluster(fray: Command, tmp_path: Path) -> None:
    variables = {"KUBECONFIG": str(tmp_path / "none")}
    told = fray.run("list", env=variables)
    assert told.code == 1
    assert (
        f"tried: the service account of this pod: this is no pod; KUBECONFIG={tmp_path / 'none'}" in told.err
    )
    wrong = fray.run("list", "--cluster", "k8s?context=nonsense")
    assert (wrong.code, "'nonsense'" in wrong.err) == (1, True)
    found = checks(fray, code=1, **variables)
    assert "kubectl config get-contexts" in found["access"]["nextStep"]

"""Who asks, and what they are told when they can't: each trouble a typed error with a next step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.api import Api
from e2e.cluster.build import CONTROL_PLANE, build
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubeconfig import build_kubeconfig, write_kubeconfig
from e2e.faulty_proxy import Call, Fault, FaultyProxy, Harm
from fray.cluster.kubernetes import KubernetesCluster
from fray.errors import AccessDeniedError, ClusterUnreachableError, FrayNotInstalledError
from fray.kube.errors import UnauthorizedError
from fray.types import Entrypoint, JobId, JobRequest
from tests.integration.cluster.conftest import NewCluster
from tests.integration.cluster.jobs import command
from tests.integration.controller.hands import eventually
from tests.integration.frayjobs import FrayJobs

RBAC = "/apis/rbac.authorization.k8s.io/v1"
JOBS: dict[str, Any] = {"apiGroups": ["fray.dev"], "resources": ["frayjobs"]}


def make_account(api: Api, namespace: str, *rules: dict[str, Any]) -> str:
    """Make a service account with these rights, and return its token."""
    core, roles = f"/api/v1/namespaces/{namespace}", f"{RBAC}/namespaces/{namespace}"
    assert api.post(f"{core}/serviceaccounts", {"metadata": {"name": "user"}}).ok
    assert api.post(f"{roles}/roles", {"metadata": {"name": "user"}, "rules": list(rules)}).ok
    binding = {
        "metadata": {"name": "user"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user"},
        "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": namespace}],
    }
    assert api.post(f"{roles}/rolebindings", binding).ok
    return new_token(api, namespace)


def new_token(api: Api, namespace: str) -> str:
    answer = api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/user/token", {"spec": {}})
    assert answer.ok, answer.body
    return str(answer.body["status"]["token"])


def kubeconfig_of(control_plane: ControlPlane, token: str, path: Path, url: str = "") -> Path:
    endpoint = control_plane.endpoint
    content = build_kubeconfig(url=url or endpoint.url, authority=endpoint.authority, token=token)
    return write_kubeconfig(path, content)


def test_a_missing_right_is_named_with_its_verb(
    control_plane: ControlPlane, api: Api, frayjobs: FrayJobs, new_cluster: NewCluster, tmp_path: Path
) -> None:
    token = make_account(api, frayjobs.namespace, {**JOBS, "verbs": ["get", "create", "delete"]})
    cluster = new_cluster(kubeconfig_of(control_plane, token, tmp_path / "user"))

    def told(act: Any) -> AccessDeniedError:
        with pytest.raises(AccessDeniedError) as caught:
            act()
        return caught.value

    # The server knows of rights a moment after they were written.
    eventually(
        lambda: told(cluster.list_jobs) and told(lambda: cluster.launch(request)).resource == "secrets"
    )
    listing, launching = told(cluster.list_jobs), told(lambda: cluster.launch(request))
    assert (listing.verb, listing.resource) == ("list", "frayjobs.fray.dev")
    assert (launching.verb, launching.resource) == ("create", "secrets")
    assert f"--serviceaccount={frayjobs.namespace}:user" in launching.next_step
    assert frayjobs.api.get(frayjobs.collection).body["items"] == []


request = JobRequest(name="train", entrypoint=Entrypoint.from_callable(print))


def test_a_token_that_is_not_accepted_is_told(
    control_plane: ControlPlane, new_cluster: NewCluster, tmp_path: Path
) -> None:
    with pytest.raises(UnauthorizedError, match="log in to the cluster again"):
        new_cluster(kubeconfig_of(control_plane, "nonsense", tmp_path / "user")).list_jobs()


def test_credentials_of_a_plugin_are_read_anew_when_they_are_refused(
    control_plane: ControlPlane, frayjobs: FrayJobs, new_cluster: NewCluster, tmp_path: Path
) -> None:
    endpoint = control_plane.endpoint
    content = build_kubeconfig(url=endpoint.url, authority=endpoint.authority, token="unused")
    credential = tmp_path / "credential"
    version = "client.authentication.k8s.io/v1"
    program = ["-c", f"print(open({str(credential)!r}).read())"]
    plugin = {"apiVersion": version, "command": sys.executable, "args": program, "interactiveMode": "Never"}
    content["users"][0]["user"] = {"exec": plugin}

    def hand_out(token: str) -> None:
        told = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}}
        credential.write_text(json.dumps(told), encoding="utf-8")

    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    hand_out("nonsense")
    cluster = new_cluster(path)
    with pytest.raises(UnauthorizedError):
        cluster.list_jobs()
    assert endpoint.token is not None
    hand_out(endpoint.token)
    assert cluster.list_jobs() == []


def test_a_server_that_is_not_there_is_told(
    control_plane: ControlPlane, new_cluster: NewCluster, tmp_path: Path
) -> None:
    path = kubeconfig_of(control_plane, "x", tmp_path / "nowhere", url="https://127.0.0.1:9")
    cluster = new_cluster(path)
    for act in (cluster.list_jobs, lambda: cluster.launch(command())):
        with pytest.raises(ClusterUnreachableError, match=r"https://127.0.0.1:9 (.|\n)*kubectl version"):
            act()


def test_a_read_is_tried_again_when_the_server_is_busy(
    proxied: KubernetesCluster, proxy: FaultyProxy, frayjobs: FrayJobs
) -> None:
    job = proxied.launch(command())
    faults = [Fault(Harm.ANSWER, 429, "TooManyRequests"), Fault(Harm.ANSWER, 503, "ServiceUnavailable")]

    def rule(call: Call) -> Fault | None:
        return faults.pop() if faults else None

    proxy.rule = rule
    assert proxied.poll(job).job_id == job
    assert faults == []


def test_a_cluster_without_fray_is_told(new_cluster: NewCluster) -> None:
    with ControlPlane(build(CONTROL_PLANE)) as bare:
        cluster = new_cluster(bare.kubeconfig, namespace="default")
        for act in (
            cluster.list_jobs,
            lambda: cluster.poll(JobId("train")),
            lambda: cluster.wait(JobId("train")),
            lambda: cluster.launch(request),
        ):
            with pytest.raises(FrayNotInstalledError) as caught:
                act()
            assert (caught.value.server, caught.value.resource) == (bare.url, "frayjobs.fray.dev")
            assert "helm install" in caught.value.next_step

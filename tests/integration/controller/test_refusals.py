"""Attempts that the cluster doesn't let start: the reason is told, and they start once they may."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.kubeconfig import build_kubeconfig, write_kubeconfig
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_thread import OperatorThread, run_operator

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"

LEAST_RIGHTS = [
    {"apiGroups": ["fray.dev"], "resources": ["frayjobs"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["fray.dev"], "resources": ["frayactors"], "verbs": ["list", "watch"]},
    {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]},
    {"apiGroups": ["fray.dev"], "resources": ["frayjobs/status"], "verbs": ["update"]},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]
CREATE_JOBSETS = {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["create"]}


@pytest.fixture
def restricted(
    hands: Hands, control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[dict[str, Any]]], Path]:
    """Makes the kubeconfig of an account that has these rights in the test's namespace, and no others."""

    def make(rules: list[dict[str, Any]]) -> Path:
        namespace = hands.namespace
        assert hands.api.post(f"{hands.core}/serviceaccounts", {"metadata": {"name": "operator"}}).ok
        asked = hands.api.post(f"{hands.core}/serviceaccounts/operator/token", {"spec": {}})
        assert asked.ok, asked.body
        roles = f"{RBAC}/namespaces/{namespace}"
        assert hands.api.post(f"{roles}/roles", {"metadata": {"name": "operator"}, "rules": rules}).ok
        binding = {
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
            "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
        }
        assert hands.api.post(f"{roles}/rolebindings", binding).ok
        endpoint, token = control_plane.endpoint, asked.body["status"]["token"]
        # The server hears of roles by a watch of its own.
        account = control_plane.api(token=token)
        eventually(lambda: account.get(hands.jobs).ok, told=lambda: account.get(hands.jobs))
        content = build_kubeconfig(url=endpoint.url, authority=endpoint.authority, token=token)
        path = write_kubeconfig(tmp_path / "restricted", content)
        monkeypatch.setenv("KUBECONFIG", str(path))
        return path

    return make


def refused_with(hands: Hands, reason: str) -> str:
    """Wait until the attempt was refused for this reason; return the sentence."""
    return str(hands.await_condition("train", "Scheduled", status="False", reason=reason)["message"])


def live(hands: Hands, name: str = "train", *, jobset: str = "train-a1") -> None:
    """Run the job to its good end."""
    made = hands.await_jobset(jobset)
    (pod,) = hands.run_all(made)
    hands.await_phase(name, "Running")
    hands.exit(pod, 0)
    hands.complete(made)
    hands.await_phase(name, "Succeeded")


def test_an_operator_with_the_least_rights_in_one_namespace_does_all_its_work(
    hands: Hands, restricted: Callable[[list[dict[str, Any]]], Path], settings_for: SettingsFor
) -> None:
    kubeconfig = restricted([*LEAST_RIGHTS, CREATE_JOBSETS])
    with run_operator(kubeconfig, settings_for(hands.namespace, read_nodes=False)) as operator:
        hands.submit("train")
        live(hands)
        hands.submit("ended")
        hands.run_all(hands.await_jobset("ended-a1"))
        hands.await_phase("ended", "Running")
        hands.edit("ended", stopped=True)
        hands.collect_until(lambda: hands.job("ended")["status"]["phase"] == "Stopped")
        hands.await_events("ended", {"AttemptStarted", "AttemptRunning", "AttemptEnded", "Stopped"})
    # Only an installation for the whole cluster lets others look at its claim; there is none.
    refused = {call for call in operator.calls if call[2] in (401, 403)}
    assert refused == {("GET", "leases.coordination.k8s.io", 403)}


def test_a_missing_right_is_told_and_no_longer_needed_once_it_is_granted(
    hands: Hands, restricted: Callable[[list[dict[str, Any]]], Path], settings_for: SettingsFor
) -> None:
    kubeconfig = restricted(LEAST_RIGHTS)
    with run_operator(kubeconfig, settings_for(hands.namespace, read_nodes=False)):
        hands.submit("train")
        told = refused_with(hands, "AdmissionRefused")
        assert told.startswith(
            "the cluster refused to create it (Forbidden): "
            'jobsets.jobset.x-k8s.io is forbidden: User "system:'
        )
        assert hands.job("train")["status"]["phase"] == "Pending"
        role = f"{RBAC}/namespaces/{hands.namespace}/roles/operator"
        assert hands.api.merge(role, {"rules": [*LEAST_RIGHTS, CREATE_JOBSETS]}).ok
        live(hands)


@pytest.fixture
def policy(hands: Hands) -> Iterator[None]:
    """An admission policy of the namespace that wants a label on JobSets; active once this returns."""
    name = f"team-{hands.namespace}"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["jobset.x-k8s.io"],
                    "apiVersions": ["*"],
                    "operations": ["CREATE"],
                    "resources": ["jobsets"],
                }
            ]
        },
        "validations": [
            {
                "expression": "has(object.metadata.labels) && 'team' in object.metadata.labels",
                "message": "a team must be named",
            }
        ],
    }
    policies, bindings = (
        f"{ADMISSION}/validatingadmissionpolicies",
        f"{ADMISSION}/validatingadmissionpolicybindings",
    )
    assert hands.api.post(policies, {"metadata": {"name": name}, "spec": spec}).ok
    selector = {"matchLabels": {"kubernetes.io/metadata.name": hands.namespace}}
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": selector},
    }
    assert hands.api.post(bindings, {"metadata": {"name": name}, "spec": binding}).ok
    eventually(
        lambda: "a team must be named" in json.dumps(try_jobset(hands)), told=lambda: try_jobset(hands)
    )
    yield
    hands.api.delete(f"{bindings}/{name}")
    hands.api.delete(f"{policies}/{name}")


def try_jobset(hands: Hands) -> Any:
    """Return what the server says to a JobSet, without making one."""
    template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "image"}]}}}}
    body = {"metadata": {"name": "try"}, "spec": {"replicatedJobs": [{"name": "a", "template": template}]}}
    path = hands.jobsets
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **body}
    return hands.api.request("POST", path, kind, query={"dryRun": "All"}).body


@pytest.mark.usefixtures("policy", "operator")
def test_a_policys_own_words_are_told_and_a_refused_job_can_be_stopped(hands: Hands) -> None:
    hands.submit("train")
    told = refused_with(hands, "AdmissionRefused")
    assert told.startswith("the cluster refused to create it (Invalid): ")
    assert told.endswith("denied request: a team must be named")
    event = hands.await_event("train", "AdmissionRefused")
    assert (event["type"], event["message"]) == ("Warning", told)
    hands.edit("train", stopped=True)
    hands.await_phase("train", "Stopped")


def test_a_used_up_quota_is_told_and_waited_for(hands: Hands, operator: OperatorThread) -> None:
    quota = f"{hands.core}/resourcequotas"
    hard = {"count/jobsets.jobset.x-k8s.io": "0"}
    assert hands.api.post(quota, {"metadata": {"name": "team"}, "spec": {"hard": hard}}).ok
    status = {"status": {"hard": hard, "used": {"count/jobsets.jobset.x-k8s.io": "0"}}}
    assert hands.api.merge(f"{quota}/team/status", status).ok
    eventually(lambda: "exceeded quota" in json.dumps(try_jobset(hands)), told=lambda: try_jobset(hands))
    hands.submit("train")
    assert refused_with(hands, "QuotaExceeded").startswith(
        "a quota of the namespace is used up: "
        'jobsets.jobset.x-k8s.io "train-a1" is forbidden: exceeded quota: team'
    )
    assert hands.api.delete(f"{quota}/team").ok
    live(hands)
    assert operator.alive


def test_a_webhook_that_gives_no_answer_is_told_and_waited_for(
    hands: Hands, operator: OperatorThread
) -> None:
    hooks, name = f"{ADMISSION}/validatingwebhookconfigurations", f"dead-{hands.namespace}"
    hook = {
        "name": "dead.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": hands.namespace}},
        "rules": [
            {
                "apiGroups": ["jobset.x-k8s.io"],
                "apiVersions": ["*"],
                "operations": ["CREATE"],
                "resources": ["jobsets"],
            }
        ],
    }
    assert hands.api.post(hooks, {"metadata": {"name": name}, "webhooks": [hook]}).ok
    eventually(
        lambda: "failed calling webhook" in json.dumps(try_jobset(hands)), told=lambda: try_jobset(hands)
    )
    hands.submit("train")
    told = refused_with(hands, "AdmissionRefused")
    assert "the cluster refused to create it (InternalError)" in told
    assert 'failed calling webhook "dead.example.com"' in told
    assert hands.api.delete(f"{hooks}/{name}").ok
    live(hands)
    assert operator.alive


@pytest.mark.usefixtures("operator")
def test_a_jobset_of_somebody_else_is_never_touched_and_waited_for(hands: Hands) -> None:
    template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "image"}]}}}}
    theirs = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train-a1"},
        "spec": {"replicatedJobs": [{"name": "a", "template": template}]},
    }
    made = hands.api.post(hands.jobsets, theirs)
    assert made.status == 201, made.body
    hands.submit("train")
    assert refused_with(hands, "NameTaken") == (
        "JobSet train-a1 exists and is owned by nobody (another object, or one that is being deleted)"
    )
    assert hands.await_jobset("train-a1") == made.body
    assert hands.api.delete(f"{hands.jobsets}/train-a1").ok
    live(hands)


@pytest.mark.usefixtures("operator")
def test_a_job_made_anew_waits_for_the_jobset_of_its_predecessor(hands: Hands) -> None:
    hands.submit("train")
    old = hands.await_jobset("train-a1")
    hands.run_all(old)
    hands.await_phase("train", "Running")
    options = {"propagationPolicy": "Foreground"}
    assert hands.api.request("DELETE", f"{hands.jobsets}/train-a1", options).ok  # as the collector would
    hands.delete_job("train")
    hands.submit("train")
    assert "owned by FrayJob train" in refused_with(hands, "NameTaken")
    hands.finish_deletion(hands.await_jobset("train-a1"))
    eventually(
        lambda: hands.await_jobset("train-a1")["metadata"]["uid"] != old["metadata"]["uid"],
        told=lambda: hands.list(hands.jobsets),
    )
    live(hands)


@pytest.mark.usefixtures("operator")
def test_a_job_waits_for_the_pods_of_a_deleted_one_of_its_name(hands: Hands) -> None:
    hands.submit("train")
    old = hands.await_jobset("train-a1")
    (pod,) = hands.run_all(old)
    hands.await_phase("train", "Running")
    hands.delete_job("train")
    hands.collect()  # the JobSet is gone at once, its pods end in their own time
    hands.submit("train")
    waiting = hands.await_condition("train", "Scheduled", status="False", reason="HostsLeftOver")
    assert "of a deleted job of this name" in waiting["message"]
    assert hands.list(hands.jobsets) == []
    hands.exit(pod, 143)
    new = hands.await_jobset("train-a1")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    job = hands.job("train")
    assert "reason" not in job["status"]["attempts"][0]
    hands.delete_pod(pod)
    live(hands)

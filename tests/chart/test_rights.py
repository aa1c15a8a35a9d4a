"""Who may do what after an installation: the exact rights, so that none is ever gained unseen."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fray.cluster.kubernetes.check_results import NEEDED
from fray_operator import scope
from tests.chart.rendering import CHART, NAMESPACE, find, kinds, operator_pod, render, rights

SINGLE = {"scope": "namespace"}
RBAC_KINDS = {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}


def grants(table: dict[str, str], name: str = "") -> set[tuple[str, str, str]]:
    return {(resource, verb, name) for resource, verbs in table.items() for verb in verbs.split()}


AUTH = "fray-auth"
OPERATOR = grants({"secrets": "get update"}, AUTH) | grants(
    {
        "fray.dev/frayjobs": "get list watch update delete",
        "fray.dev/frayjobs/status": "update",
        "fray.dev/frayjobs/finalizers": "update",
        "fray.dev/frayactors": "get list watch delete",
        "fray.dev/frayactors/status": "update",
        "fray.dev/frayactors/finalizers": "update",
        "apps/statefulsets": "get list watch create update delete",
        "configmaps": "list watch",
        "jobset.x-k8s.io/jobsets": "get list watch create update delete",
        "batch/jobs": "get list watch create update delete",
        "networking.k8s.io/networkpolicies": "create get",
        "pods": "list watch",
        "events": "list create",
        "kueue.x-k8s.io/workloads": "list",
        "kueue.x-k8s.io/localqueues": "get",
        "secrets": "create",
    }
)
LEASES = "coordination.k8s.io/leases"
CLUSTER = grants({LEASES: "list"}, "fray-scope") | grants(
    {
        "nodes": "list watch",
        "kueue.x-k8s.io/clusterqueues": "get",
        "kueue.x-k8s.io/resourceflavors": "get",
        "kueue.x-k8s.io/topologies": "get",
    }
)
LEASE, NAMESPACE_CLAIM, CLUSTER_CLAIM = (
    grants({LEASES: "create"}) | grants({LEASES: "get update"}, name)
    for name in ("fray-operator", "fray-scope", "fray-scope-cluster")
)
CLUSTER_CLAIM_NAME = "fray-scope-cluster"
EDIT = grants(
    {
        "fray.dev/frayjobs": "get list watch create update patch delete deletecollection",
        "fray.dev/frayactors": "get list watch create update patch delete deletecollection",
        "fray.dev/frayjobs/scale": "get update patch",
        "fray.dev/frayactors/scale": "get update patch",
    }
)
JOB = EDIT | grants(
    {
        "secrets": "create",
        "configmaps": "create get patch",
        "pods": "get list watch",
        "pods/log": "get",
        "jobset.x-k8s.io/jobsets": "get list watch",
    }
)


def subjects(binding: dict[str, Any]) -> list[tuple[str, str]]:
    return [(subject["namespace"], subject["name"]) for subject in binding["subjects"]]


def test_cluster_wide_operator_has_exactly_these_rights() -> None:
    objects = render()
    assert rights(find(objects, "ClusterRole", "fray-operator")) == OPERATOR | CLUSTER
    binding = find(objects, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == "fray-operator"
    assert subjects(binding) == [(NAMESPACE, "fray-operator")]


def test_a_cluster_wide_claim_is_kept_by_the_operator_and_read_by_all_accounts() -> None:
    objects = render()
    assert rights(find(objects, "Role", "fray-operator-claim", namespace="default")) == CLUSTER_CLAIM
    assert subjects(find(objects, "RoleBinding", "fray-operator-claim")) == [(NAMESPACE, "fray-operator")]
    view = find(objects, "Role", "fray-operator-claim-view", namespace="default")
    assert rights(view) == grants({LEASES: "get"}, CLUSTER_CLAIM_NAME)
    (group,) = find(objects, "RoleBinding", "fray-operator-claim-view")["subjects"]
    assert (group["kind"], group["name"]) == ("Group", "system:serviceaccounts")


def test_the_chart_names_the_leases_as_the_operator_does() -> None:
    assert (scope.NAMESPACE_CLAIM, scope.CLUSTER_CLAIM) == ("fray-scope", CLUSTER_CLAIM_NAME)
    assert scope.CLUSTER_CLAIM_NAMESPACE == "default"


def test_lease_is_the_only_right_beyond_what_is_served() -> None:
    for values in ({}, SINGLE):
        objects = render(values)
        assert rights(find(objects, "Role", "fray-operator-lease", namespace=NAMESPACE)) == LEASE
        assert subjects(find(objects, "RoleBinding", "fray-operator-lease")) == [(NAMESPACE, "fray-operator")]


def test_single_namespace_operator_has_exactly_these_rights_in_its_namespace() -> None:
    objects = render(SINGLE, namespace="team")
    assert rights(find(objects, "Role", "fray-operator", namespace="team")) == OPERATOR | NAMESPACE_CLAIM
    binding = find(objects, "RoleBinding", "fray-operator", namespace="team")
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "fray-operator",
    }
    assert subjects(binding) == [("team", "fray-operator")]


def test_an_operator_of_some_namespaces_has_its_rights_in_each_and_nowhere_else() -> None:
    values = {**SINGLE, "namespaces": ["ml", "research"]}
    objects = render(values)
    for namespace in ("ml", "research"):
        role = find(objects, "Role", "fray-operator", namespace=namespace)
        assert rights(role) == OPERATOR | NAMESPACE_CLAIM
        binding = find(objects, "RoleBinding", "fray-operator", namespace=namespace)
        assert subjects(binding) == [(NAMESPACE, "fray-operator")]
    assert not kinds(objects) & {"ClusterRole", "ClusterRoleBinding"}
    roles = [
        (role["metadata"]["namespace"], role["metadata"]["name"])
        for role in objects
        if role["kind"] == "Role"
    ]
    assert [name for namespace, name in roles if namespace == NAMESPACE] == ["fray-operator-lease"]
    env = {entry["name"]: entry.get("value") for entry in operator_container(objects)["env"]}
    assert env["FRAY_NAMESPACES"] == "ml,research"


def operator_container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (container,) = operator_pod(objects)["spec"]["containers"]
    assert isinstance(container, dict)
    return container


README = (CHART / "README.md").read_text(encoding="utf-8")


def documented(begin: str, end: str) -> set[tuple[str, str, str]]:
    """What the README says between two places that somebody may do: its tables, row by row."""
    text = README[README.index(begin) : README.index(end)]
    found = set()
    for resources, verbs in re.findall(r"^\| (`.*?) \| (.*?) \|", text, flags=re.MULTILINE):
        names, _, only = resources.partition(" named ")
        for resource in re.findall(r"`(.+?)`", names):
            plural, _, group = resource.partition(".")
            place = f"{group}/{plural}" if group else plural
            found |= {(place, verb, only.strip("`")) for verb in verbs.split(", ")}
    return found


def test_the_readme_says_what_the_operator_may_do_no_less_and_no_more() -> None:
    assert documented("**The operator**", "With `scope=cluster`") == OPERATOR
    assert documented("With `scope=cluster`", "and has in the namespace `default`") == CLUSTER
    assert documented("and has in the namespace `default`", "With `scope=namespace`") == CLUSTER_CLAIM
    assert documented("With `scope=namespace` it has", "In its own namespace:") == NAMESPACE_CLAIM
    assert documented("In its own namespace:", "**Job pods**") == LEASE
    assert documented("**Job pods**", "**People**") == JOB


def test_jobs_get_the_credentials_of_their_registry() -> None:
    values = {"jobs": {"namespaces": ["a", "b"], "serviceAccount": {"imagePullSecrets": ["hub", "own"]}}}
    for namespace in ("a", "b"):
        account = find(render(values), "ServiceAccount", "fray-job", namespace=namespace)
        assert account["imagePullSecrets"] == [{"name": "hub"}, {"name": "own"}]
    assert "imagePullSecrets" not in find(render(), "ServiceAccount", "fray-job")


def test_single_namespace_installation_creates_nothing_outside_its_namespace() -> None:
    everything = {
        **SINGLE,
        "networkPolicy": {"enabled": True},
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    }
    objects = render(everything, namespace="team")
    assert not kinds(objects) & {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    assert {candidate["metadata"].get("namespace") for candidate in objects} == {"team"}


@pytest.mark.parametrize(
    ("values", "namespace", "expected"),
    [
        ({}, "fray-system", ["default"]),
        ({"jobs": {"namespaces": ["ml", "research"]}}, "fray-system", ["ml", "research"]),
        (SINGLE, "team", ["team"]),
        ({**SINGLE, "namespaces": ["ml", "research"]}, "team", ["ml", "research"]),
        ({**SINGLE, "namespaces": ["ml", "research"], "jobs": {"namespaces": ["ml"]}}, "team", ["ml"]),
        ({**SINGLE, "jobs": {"namespaces": ["team"]}}, "team", ["team"]),
    ],
)
def test_job_pods_get_an_account_with_exactly_these_rights(
    values: dict[str, Any], namespace: str, expected: list[str]
) -> None:
    objects = render(values, namespace=namespace)
    accounts = [
        candidate["metadata"]["namespace"]
        for candidate in objects
        if candidate["kind"] == "ServiceAccount" and candidate["metadata"]["name"] == "fray-job"
    ]
    assert sorted(accounts) == expected
    for where in expected:
        assert rights(find(objects, "Role", "fray-job", namespace=where)) == JOB
        binding = find(objects, "RoleBinding", "fray-job", namespace=where)
        assert binding["roleRef"]["kind"] == "Role"
        assert subjects(binding) == [(where, "fray-job")]


def test_a_jobs_account_may_do_what_the_doctor_asks_for() -> None:
    names = {right: f"{right.group}/{right.resource}".lstrip("/") for right in NEEDED}
    assert {(name, right.verb, "") for right, name in names.items()} <= JOB


def test_no_role_has_a_wildcard_or_can_read_secrets_of_others_or_write_a_status_of_jobs() -> None:
    for values in ({}, SINGLE):
        for role in (r for r in render(values) if r["kind"] in ("Role", "ClusterRole")):
            granted = rights(role)
            assert not [grant for grant in granted if "*" in "".join(grant)]
            secrets = {(verb, name) for resource, verb, name in granted if resource == "secrets"}
            own = role["metadata"]["name"] == "fray-operator"
            assert secrets <= {("create", ""), *([("get", AUTH), ("update", AUTH)] if own else [])}
            if not own:
                assert not [resource for resource, _, _ in granted if resource.endswith("/status")]


def test_standard_roles_gain_frayjobs_and_nothing_else() -> None:
    objects = render()
    edit, view = (
        find(objects, "ClusterRole", "fray-operator-edit"),
        find(objects, "ClusterRole", "fray-operator-view"),
    )
    assert rights(edit) == EDIT
    assert rights(view) == grants(
        {"fray.dev/frayjobs": "get list watch", "fray.dev/frayactors": "get list watch"}
    )
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    aggregated = {
        role["metadata"]["name"]: {key for key in role["metadata"]["labels"] if key.startswith(prefix)}
        for role in (edit, view)
    }
    assert aggregated == {
        "fray-operator-edit": {f"{prefix}admin", f"{prefix}edit"},
        "fray-operator-view": {f"{prefix}view"},
    }


def test_aggregation_can_be_declined() -> None:
    roles = [
        r["metadata"]["name"] for r in render({"rbac": {"aggregate": False}}) if r["kind"] == "ClusterRole"
    ]
    assert roles == ["fray-operator"]


def test_nothing_is_granted_when_rbac_is_left_to_an_administrator() -> None:
    for values in ({}, SINGLE):
        objects = render({**values, "rbac": {"create": False}})
        assert not kinds(objects) & RBAC_KINDS
        assert "ServiceAccount" in kinds(objects)


def test_existing_accounts_are_used_and_granted_the_rights() -> None:
    objects = render(
        {
            "serviceAccount": {"create": False, "name": "ours"},
            "jobs": {"serviceAccount": {"create": False, "name": "theirs"}},
        }
    )
    assert "ServiceAccount" not in kinds(objects)
    assert subjects(find(objects, "ClusterRoleBinding")) == [(NAMESPACE, "ours")]
    assert subjects(find(objects, "RoleBinding", "theirs")) == [("default", "theirs")]


def test_accounts_carry_their_annotations() -> None:
    objects = render(
        {
            "serviceAccount": {"annotations": {"team": "platform"}},
            "jobs": {"serviceAccount": {"annotations": {"iam.gke.io/gcp-service-account": "a@b"}}},
        }
    )
    assert find(objects, "ServiceAccount", "fray-operator")["metadata"]["annotations"] == {"team": "platform"}
    annotations = find(objects, "ServiceAccount", "fray-job")["metadata"]["annotations"]
    assert annotations == {"iam.gke.io/gcp-service-account": "a@b"}


def test_the_operators_account_hands_no_token_to_other_pods() -> None:
    assert find(render(), "ServiceAccount", "fray-operator")["automountServiceAccountToken"] is False


def test_a_releases_name_is_in_every_name_so_that_releases_do_not_share_objects() -> None:
    objects = render({"jobs": {"serviceAccount": {"name": "worker"}}}, release="blue")
    own = {o["metadata"]["name"] for o in objects if o["kind"] != "CustomResourceDefinition"}
    assert all(name.startswith("blue-operator") or name == "worker" for name in own)

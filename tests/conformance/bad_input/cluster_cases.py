"""What a Kubernetes cluster doesn't take: bad ways to it, what is too large, what its server refuses."""

from __future__ import annotations

from typing import Any, Final

from fray.cluster import Entrypoint, ResourceConfig
from fray.errors import (
    AccessDeniedError,
    ClusterConfigError,
    ClusterSpecError,
    ClusterUnreachableError,
    InvalidJobError,
    InvalidRequestError,
    JobNotFoundError,
    NamespaceNotFoundError,
    PayloadStorageError,
    PayloadTooLargeError,
    UnsupportedFeatureError,
    WorkspaceLinkError,
    WorkspaceTooLargeError,
)
from fray.kube.api import Manifest
from fray.kube.errors import ForbiddenError, ServerError, UnauthorizedError
from fray.kube.resources import Resource
from fray.vocabulary import API_VERSION, FRAYJOB_PLURAL, GROUP
from tests.conformance.bad_input.scene import KUBERNETES, Case

__all__ = ["CLUSTER_CASES"]

LARGE: Final = 9 << 20
"""Bytes: more than Secrets take."""
QUOTAS: Final = Resource("", "v1", "resourcequotas")
ADMISSION: Final = "admissionregistration.k8s.io"
POLICIES: Final = Resource(ADMISSION, "v1", "validatingadmissionpolicies", namespaced=False)
BINDINGS: Final = Resource(ADMISSION, "v1", "validatingadmissionpolicybindings", namespaced=False)
WEBHOOKS: Final = Resource(ADMISSION, "v1", "validatingwebhookconfigurations", namespaced=False)
RULES: Final = [
    {
        "apiGroups": [GROUP],
        "apiVersions": [API_VERSION.rpartition("/")[2]],
        "operations": ["CREATE"],
        "resources": [FRAYJOB_PLURAL],
    }
]

Objects = list[tuple[Resource, Manifest]]


def take(data: bytes) -> int:
    return len(data)


def quota(limits: dict[str, str], namespace: str) -> Objects:
    return [(QUOTAS, {"metadata": {"name": "none-left", "namespace": namespace}, "spec": {"hard": limits}})]


def only(namespace: str) -> dict[str, Any]:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


def policy(namespace: str) -> Objects:
    name = f"no-jobs.{namespace}"
    refused = [{"expression": "false", "message": "no jobs on Sundays"}]
    constraints = {"namespaceSelector": only(namespace), "resourceRules": RULES}
    spec = {"matchConstraints": constraints, "validations": refused}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return [
        (POLICIES, {"metadata": {"name": name}, "spec": spec}),
        (BINDINGS, {"metadata": {"name": name}, "spec": bound}),
    ]


def dead_webhook(namespace: str) -> Objects:
    name = f"no-jobs.{namespace}.test"
    hook = {
        "name": name,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": RULES,
        "namespaceSelector": only(namespace),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return [(WEBHOOKS, {"metadata": {"name": name}, "webhooks": [hook]})]


def forget_credentials(config: dict[str, Any]) -> None:
    for user in config["users"]:
        user["user"] = {}


def forge_token(config: dict[str, Any]) -> None:
    for user in config["users"]:
        user["user"] = {"token": "forged"}


def misdirect(config: dict[str, Any]) -> None:
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = "https://127.0.0.1:1"


def stage_nowhere() -> Entrypoint:
    return Entrypoint.from_callable(take, [bytes(LARGE)])


ACCESS: Final = [
    Case("context-unknown", lambda on: on.elsewhere(context="no-such"), ClusterConfigError, "'no-such'"),
    Case("kubeconfig-empty", lambda on: on.elsewhere(dict.clear), ClusterConfigError, "kubeconfig"),
    Case(
        "kubeconfig-other-shape",
        lambda on: on.elsewhere(lambda config: config.update(contexts=7)),
        ClusterConfigError,
        "kubeconfig",
    ),
    Case("server-unreachable", lambda on: on.elsewhere(misdirect), ClusterUnreachableError, "127.0.0.1:1"),
    Case(
        "namespace-unknown", lambda on: on.elsewhere(namespace="no-such"), NamespaceNotFoundError, "'no-such'"
    ),
    Case(
        "nobody-in-particular",
        lambda on: on.elsewhere(forget_credentials),
        AccessDeniedError,
        "may not create",
    ),
    Case("token-forged", lambda on: on.elsewhere(forge_token), UnauthorizedError, "401"),
    Case(
        "storage-unknown",
        lambda on: on.elsewhere(staging="no-such://bucket", entrypoint=stage_nowhere()),
        PayloadStorageError,
        "no-such://bucket",
    ),
    Case(
        "cli-namespace-unknown",
        lambda on: on.fray("run", "-n", "no-such", "--", "true"),
        NamespaceNotFoundError,
        "'no-such'",
    ),
    Case("cli-namespace-illegal", lambda on: on.fray("list", "-n", "No_Such"), ClusterSpecError, "'No_Such'"),
    Case(
        "cli-context-unknown",
        lambda on: on.fray("list", "--cluster", "k8s?context=no-such"),
        ClusterConfigError,
        "'no-such'",
    ),
    Case(
        "cli-workdir",
        lambda on: on.fray("run", "--workdir", "/", "-f", on.write_job()),
        InvalidRequestError,
        "--workdir",
    ),
    Case(
        "cli-poll-elsewhere",
        lambda on: on.fray("status", "-n", "no-such", "bad"),
        JobNotFoundError,
        "namespace no-such",
    ),
]
TOO_LARGE: Final = [
    Case("call-too-large", lambda on: on.call(take, bytes(LARGE)), PayloadTooLargeError, "args[0]"),
    Case(
        "workspace-too-large",
        lambda on: on.within(workspace=on.fill(size=4 << 30)),
        WorkspaceTooLargeError,
        "weights.bin",
    ),
    Case(
        "variables-too-large",
        lambda on: on.within(env_vars={f"NOTES_{number}": "x" * 100_000 for number in range(20)}),
        InvalidJobError,
        "spec: takes 2,0",
    ),
    Case(
        "arguments-too-large",
        lambda on: on.run("echo", *["x" * 100_000] * 40),
        InvalidJobError,
        "spec: takes 4,0",
    ),
]
TAKEN_ELSEWHERE: Final = [
    Case(
        "gpu-of-any-type",
        lambda on: on.launch(resources=ResourceConfig.with_gpu("auto")),
        UnsupportedFeatureError,
        "'auto'",
    ),
    Case(
        "workspace-link",
        lambda on: on.within(workspace=on.link("/etc/hostname")),
        WorkspaceLinkError,
        "data is a link to /etc/hostname",
    ),
]
REFUSED: Final = [
    Case(
        "quota-of-jobs",
        lambda on: on.launch(),
        ForbiddenError,
        "none-left",
        beside=lambda namespace: quota({"count/frayjobs.fray.dev": "0"}, namespace),
    ),
    Case(
        "quota-of-secrets",
        lambda on: on.call(take, b""),
        ForbiddenError,
        "none-left",
        beside=lambda namespace: quota({"count/secrets": "0"}, namespace),
    ),
    Case("policy", lambda on: on.launch(), InvalidJobError, "no jobs on Sundays", beside=policy),
    Case("dead-webhook", lambda on: on.launch(), ServerError, "no-jobs", beside=dead_webhook),
]
CLUSTER_CASES: Final[tuple[Case, ...]] = tuple(
    Case(each.id, each.ask, each.error, each.told, KUBERNETES, each.beside)
    for each in (*ACCESS, *TOO_LARGE, *TAKEN_ELSEWHERE, *REFUSED)
)

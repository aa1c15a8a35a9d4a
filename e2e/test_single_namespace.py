"""An installation for one namespace, made by somebody who may do everything there and nothing elsewhere.

The cluster-wide installation is removed for these tests: two operators for one namespace would be a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.command import await_condition
from e2e.cluster.errors import CommandError
from e2e.job_namespace import JobNamespace, build_shell, open_job_namespace
from e2e.kubectl import Kubectl
from e2e.release import Release
from fray.vocabulary import API_VERSION, FRAYJOB_PLURAL

INSTALLER = "installer"
FRAYJOBS = f"{FRAYJOB_PLURAL}.{API_VERSION.partition('/')[0]}"


@dataclass(frozen=True)
class Tenant:
    """A namespace with an operator of its own."""

    jobs: JobNamespace
    release: Release


def build_rights(namespace: str) -> list[dict[str, Any]]:
    """The installer's account, and every right within the namespace."""
    meta = {"name": INSTALLER, "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": [everything]}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": INSTALLER},
        "subjects": [{"kind": "ServiceAccount", "name": INSTALLER, "namespace": namespace}],
    }
    return [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}, role, binding]


def kubeconfig_of(account: str, kubectl: Kubectl, folder: Path) -> Path:
    """A kubeconfig of a service account of kubectl's namespace."""
    token = kubectl("create", "token", account).strip()
    content = yaml.safe_load(kubectl.kubeconfig.read_text(encoding="utf-8"))
    content["users"][0]["user"] = {"token": token}
    path = folder / f"{account}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def may_all(kubectl: Kubectl) -> bool:
    """Whether the user of kubectl has every right in its namespace."""
    try:
        kubectl("auth", "can-i", "*", "*")
    except CommandError:
        return False
    return True


@pytest.fixture(scope="module")
def tenant(
    kubectl: Kubectl, cluster_wide: Release, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tenant]:
    """An installation by the installer, who has no right outside of the namespace."""
    cluster_wide.install()  # the CRDs, which an administrator puts there, stay when it goes
    cluster_wide.uninstall()
    with open_job_namespace(kubectl, cluster_wide, account=False) as space:
        space.kubectl.apply(*build_rights(space.name))
        kubeconfig = kubeconfig_of(INSTALLER, space.kubectl, tmp_path_factory.mktemp("installer"))
        installer = replace(space.kubectl, kubeconfig=kubeconfig)
        # The API server grants what a new RoleBinding says a moment later.
        await_condition("the installer may do everything", lambda: may_all(installer), timeout=60)
        release = Release(
            replace(cluster_wide.helm, kubeconfig=kubeconfig),
            replace(kubectl, kubeconfig=kubeconfig),
            values=("--set=scope=namespace", "--set=replicas=1"),
            name="own",
            namespace=space.name,
        )
        notes = release.install()
        assert f"serves FrayJobs in {space.name}." in notes
        yield Tenant(space, release)
        release.uninstall()


def test_jobs_of_the_namespace_run(tenant: Tenant) -> None:
    status = tenant.jobs.run(build_shell("own", "echo own", replicas=2))
    assert status["phase"] == "Succeeded", status
    assert tenant.jobs.logs("own") == ["own\n", "own\n"]


def test_why_a_job_waits_is_told_in_the_schedulers_words(tenant: Tenant) -> None:
    """Without a look at the nodes there is no better word, but there is one."""
    placement = {"nodePool": "nowhere"}
    tenant.jobs.submit(build_shell("lost", "true", placement=placement))
    tenant.jobs.await_reason("lost", "Unschedulable")
    message = tenant.jobs.condition("lost", "Scheduled")["message"]
    assert "didn't match Pod's node affinity/selector" in message


def test_jobs_of_other_namespaces_are_left_alone(tenant: Tenant, kubectl: Kubectl) -> None:
    with open_job_namespace(kubectl, tenant.release, account=False) as other:
        other.submit(build_shell("foreign", "true"))
        # One of its own that came later is done: it had every chance to see the other.
        assert tenant.jobs.run(build_shell("later", "true"))["phase"] == "Succeeded"
        assert "status" not in other.job("foreign")


def test_its_operator_may_read_nothing_outside(tenant: Tenant, tmp_path: Path) -> None:
    """By its own token: what it holds is what the chart granted, and the chart could grant no more."""
    kubeconfig = kubeconfig_of(tenant.release.deployment, tenant.jobs.kubectl, tmp_path)
    operator = replace(tenant.jobs.kubectl, kubeconfig=kubeconfig)
    operator("get", FRAYJOBS)
    for words in (
        ("nodes",),
        (FRAYJOBS, "--all-namespaces"),
        ("secrets",),
        ("pods", "--namespace=kube-system"),
    ):
        with pytest.raises(CommandError, match="Forbidden"):
            operator("get", *words)

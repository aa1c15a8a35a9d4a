"""Which cluster and namespace a spec means, and what is told where nothing names one."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.config import incluster_config

from fray.cluster.cluster_spec import KubernetesSpec
from fray.cluster.kubernetes.access import open_access
from fray.errors import AccessDeniedError, ClusterConfigError

AUTHORITY = ssl.get_default_verify_paths()


def kubeconfig(
    path: Path,
    *contexts: tuple[str, str | None],
    current: str | None = "one",
    user: dict[str, Any] | None = None,
) -> str:
    known = [
        {"name": name, "context": {"cluster": "c", "user": "u", **({"namespace": space} if space else {})}}
        for name, space in contexts
    ]
    content: dict[str, Any] = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
        "contexts": known,
    }
    if current is not None:
        content["current-context"] = current
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def find(spec: KubernetesSpec, environ: dict[str, str], **parts: Any) -> tuple[str, str]:
    async def main() -> tuple[str, str]:
        access = await open_access(spec, environ, **parts)
        await access.close()
        return access.server, access.namespace

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("spec", "namespace"),
    [
        (KubernetesSpec(), "first"),
        (KubernetesSpec(context="two"), "second"),
        (KubernetesSpec(context="bare"), "default"),
        (KubernetesSpec(context="two", namespace="ml"), "ml"),
    ],
    ids=str,
)
def test_the_namespace_is_the_spec_s_or_the_context_s(
    tmp_path: Path, spec: KubernetesSpec, namespace: str
) -> None:
    path = kubeconfig(tmp_path / "config", ("one", "first"), ("two", "second"), ("bare", None))
    assert find(spec, {"KUBECONFIG": path}) == ("http://127.0.0.1:1", namespace)


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A pod's variables, and its account's files."""
    for name, text in (("token", "t"), ("namespace", "of-the-pod\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert AUTHORITY.cafile is not None
    (tmp_path / "ca.crt").write_bytes(Path(AUTHORITY.cafile).read_bytes())
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    variables = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


def test_in_a_pod_it_is_the_pod_s_own(tmp_path: Path, pod: dict[str, str]) -> None:
    assert find(KubernetesSpec(), pod, account=tmp_path) == ("https://10.0.0.1:443", "of-the-pod")
    assert find(KubernetesSpec(namespace="ml"), pod, account=tmp_path)[1] == "ml"


def test_a_context_counts_in_a_pod_too(tmp_path: Path, pod: dict[str, str]) -> None:
    path = kubeconfig(tmp_path / "config", ("one", "first"))
    assert find(KubernetesSpec(context="one"), {**pod, "KUBECONFIG": path})[0] == "http://127.0.0.1:1"


def test_a_pod_without_an_account_may_have_a_kubeconfig(tmp_path: Path, pod: dict[str, str]) -> None:
    (tmp_path / "token").unlink()
    path = kubeconfig(tmp_path / "config", ("one", "first"))
    assert find(KubernetesSpec(), {**pod, "KUBECONFIG": path})[1] == "first"
    with pytest.raises(ClusterConfigError, match="service account of this pod: Service token file"):
        find(KubernetesSpec(), {**pod, "KUBECONFIG": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such file"),
        ("", "no kubeconfig"),
        ("a: [", "expected"),
        ("just text", "no kubeconfig"),
        ("contexts: 3\ncurrent-context: one", "no kubeconfig"),
        ("current-context: one\ncontexts: []\nclusters: []", "one"),
    ],
    ids=["missing", "empty", "no YAML", "text", "of another shape", "no such context"],
)
def test_a_kubeconfig_that_leads_nowhere_is_told(tmp_path: Path, content: str | None, problem: str) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ClusterConfigError, match="kubectl config get-contexts") as caught:
        find(KubernetesSpec(), {"KUBECONFIG": str(path)})
    pod, file = caught.value.tried
    assert "no pod" in pod
    assert file.startswith(f"KUBECONFIG={path}: ")
    assert problem in file


def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", ("one", None))
    with pytest.raises(ClusterConfigError, match="the context 'gke'") as caught:
        find(KubernetesSpec(context="gke"), {"KUBECONFIG": path})
    assert len(caught.value.tried) == 1


@pytest.mark.parametrize("script", ["exit 1", "echo nothing", "echo '{\"status\": {}}'"])
def test_a_program_that_gives_no_credentials_is_named(tmp_path: Path, script: str) -> None:
    """The official client would go on as nobody, and the server tell that nobody may do anything."""
    plugin = tmp_path / "get-credentials"
    plugin.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    plugin.chmod(0o755)
    called = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(plugin),
        "interactiveMode": "Never",
    }
    path = kubeconfig(tmp_path / "config", ("one", None), user={"exec": called})
    with pytest.raises(ClusterConfigError, match="get-credentials' of its user gave no credentials"):
        find(KubernetesSpec(), {"KUBECONFIG": path})


def test_who_has_no_credentials_is_told_to_log_in() -> None:
    nobody = AccessDeniedError("system:anonymous", "list", "frayjobs.fray.dev", "ml", "https://x")
    assert "log in" in nobody.next_step
    assert "rolebinding" not in nobody.next_step
    assert "--user=me" in replace(nobody, account="me").next_step

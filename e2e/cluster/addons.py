"""Install what a usable cluster has beyond Kubernetes itself: names (CoreDNS) and JobSet, each waited for.

What only some scenarios need is installed by modules of its own (`kueue`, `fake_nodes`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.api import Api
from e2e.cluster.build import module_source
from e2e.cluster.command import await_condition, run
from e2e.cluster.images import coredns_image, jobset_image
from e2e.cluster.layout import DNS_ADDRESS

__all__ = [
    "await_coredns",
    "await_jobset",
    "build_probe",
    "describe_pods",
    "install_chart",
    "install_coredns",
    "install_jobset",
    "is_jobset_serving",
]

_MANIFESTS = Path(__file__).parent / "manifests"
_FIELD_MANAGER = "fray-e2e"
_READY_SECONDS = 180.0
_JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
_JOBSET_NAMESPACE = "jobset-system"


def install_coredns(api: Api) -> None:
    """Apply CoreDNS under the cluster's DNS address."""
    text = (_MANIFESTS / "coredns.yaml").read_text(encoding="utf-8")
    text = text.replace("IMAGE", coredns_image()).replace("DNS_ADDRESS", DNS_ADDRESS)
    for manifest in yaml.safe_load_all(text):
        api.apply_object(manifest, field_manager=_FIELD_MANAGER)


def await_coredns(api: Api) -> None:
    """Return once CoreDNS answers. Raises NotReadyError."""
    _await_available(api, "kube-system", "coredns")


def install_jobset(helm: Sequence[str], *, kubeconfig: Path, home: Path) -> None:
    """Install JobSet by its own chart, without waiting for it; parameters as of `install_chart`.

    Raises CommandError.
    """
    repository, tag = jobset_image()
    values: dict[str, Any] = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "controller": {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": None}},
    }
    install_chart("jobset", _JOBSET_NAMESPACE, values, helm, kubeconfig=kubeconfig, home=home)


def install_chart(
    part: str,
    namespace: str,
    values: Mapping[str, Any],
    helm: Sequence[str],
    *,
    kubeconfig: Path,
    home: Path,
) -> None:
    """Install a part by the chart that lies in its sources, without waiting for it.

    Parameters: `helm` the words of a command that runs helm, `home` a folder for what helm keeps.
    Raises CommandError.
    """
    environment = {**os.environ} | {
        f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")
    }
    chart = module_source(part) / "charts" / part
    command = [*helm, "upgrade", "--install", part, str(chart), f"--kubeconfig={kubeconfig}"]
    command += [f"--namespace={namespace}", "--create-namespace", "--values=-"]
    run(command, stdin=yaml.safe_dump(values), environment=environment)


def await_jobset(api: Api) -> None:
    """Return once a JobSet can be created, which takes its webhooks too. Raises NotReadyError."""
    await_condition(
        "JobSet's webhooks answer",
        lambda: is_jobset_serving(api),
        timeout=_READY_SECONDS,
        details=lambda: describe_pods(api, _JOBSET_NAMESPACE),
    )


def is_jobset_serving(api: Api) -> bool:
    """Whether creating a JobSet would succeed now; nothing is created."""
    return api.request("POST", _JOBSETS, build_probe(), query={"dryRun": "All"}).status == 201


def build_probe() -> dict[str, Any]:
    """A JobSet that any server takes that has JobSet."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}
    job = {"template": {"spec": {"template": {"spec": pod}}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "probe"},
        "spec": {"replicatedJobs": [{"name": "j", "replicas": 1, **job}]},
    }


def describe_pods(api: Api, namespace: str) -> str:
    """One line per pod of a namespace: phase and what each container waits for."""
    lines = []
    for pod in api.get(f"/api/v1/namespaces/{namespace}/pods").body.get("items", []):
        states = [container.get("state") for container in pod["status"].get("containerStatuses", [])]
        conditions = [c for c in pod["status"].get("conditions", []) if c["status"] != "True"]
        lines.append(f"{pod['metadata']['name']}: {pod['status'].get('phase')} {states} {conditions}")
    return "\n".join(lines) or f"no pods in {namespace}"


def _await_available(api: Api, namespace: str, name: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"

    def is_available() -> bool:
        answer = api.get(path)
        return answer.ok and answer.body.get("status", {}).get("availableReplicas", 0) > 0

    await_condition(
        f"deployment {namespace}/{name} is available",
        is_available,
        timeout=_READY_SECONDS,
        details=lambda: describe_pods(api, namespace),
    )

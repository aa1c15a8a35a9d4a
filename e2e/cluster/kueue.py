"""Kueue in a cluster that runs: queues, quota and preemption, for the scenarios that are about them.

It is there on request only. Its webhooks answer for every JobSet of the namespaces that they are told of, and
whatever measures or breaks JobSets should not measure or break Kueue too; so it serves no namespace but
those with the label `NAMESPACE_LABEL`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.addons import build_probe, describe_pods, install_chart
from e2e.cluster.api import Api, ApiError
from e2e.cluster.command import await_condition
from e2e.cluster.images import kueue_image

__all__ = ["NAMESPACE_LABEL", "await_kueue", "install_kueue", "is_kueue_serving"]

NAMESPACE_LABEL = "fray.test/kueue"
"""Namespaces with this label, `true`, are Kueue's."""
_NAMESPACE = "kueue-system"
_READY_SECONDS = 180.0
_PROBE_PATH = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{_NAMESPACE}/jobsets"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_VISIBILITY = ("v1beta1.visibility.kueue.x-k8s.io", "v1beta2.visibility.kueue.x-k8s.io")


def install_kueue(api: Api, helm: Sequence[str], *, kubeconfig: Path, home: Path) -> None:
    """Install Kueue by its own chart, without waiting for it; parameters as of `addons.install_chart`.

    Raises CommandError, ApiError.
    """
    install_chart(
        *("kueue", _NAMESPACE, _build_values(), helm),
        kubeconfig=kubeconfig,
        home=home,
    )
    labelled = api.merge(
        f"/api/v1/namespaces/{_NAMESPACE}", {"metadata": {"labels": {NAMESPACE_LABEL: "true"}}}
    )
    if not labelled.ok:
        raise ApiError(f"namespace {_NAMESPACE} can't be labelled", labelled)
    for name in _VISIBILITY:
        # The chart has no value to leave them out. An API whose server doesn't answer keeps every namespace
        # that is being deleted from going, and the apiservers here are not set up to pass requests on:
        # https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/
        removed = api.delete(f"{_API_SERVICES}/{name}")
        if not removed.ok and removed.status != 404:
            raise ApiError(f"the APIService {name} can't be removed", removed)


def await_kueue(api: Api) -> None:
    """Return once a JobSet that names a queue is held by Kueue. Raises NotReadyError."""
    await_condition(
        "Kueue's webhooks answer",
        lambda: is_kueue_serving(api),
        timeout=_READY_SECONDS,
        details=lambda: describe_pods(api, _NAMESPACE),
    )


def is_kueue_serving(api: Api) -> bool:
    """Whether a JobSet that names a queue would be held by Kueue now; nothing is created."""
    probe = build_probe()
    probe["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "probe"}
    answer = api.request("POST", _PROBE_PATH, probe, query={"dryRun": "All"})
    return answer.ok and answer.body["spec"].get("suspend") is True


def _build_values() -> dict[str, Any]:
    repository, tag = kueue_image()
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": False},
        "managedJobsNamespaceSelector": {"matchLabels": {NAMESPACE_LABEL: "true"}},
        "integrations": {"frameworks": ["jobset.x-k8s.io/jobset", "batch/job"]},
    }
    return {
        "controllerManager": {
            "featureGates": [
                {"name": "VisibilityOnDemand", "enabled": False},
                {"name": "ElasticJobsViaWorkloadSlices", "enabled": True},
            ],
            "manager": {
                "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": None},
            },
            "readinessProbe": {"initialDelaySeconds": 1},
        },
        "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(config)},
    }

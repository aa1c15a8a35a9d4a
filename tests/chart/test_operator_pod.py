"""The operator's Deployment: what it is told, how it is confined, probed and placed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fray.accelerators import node_labels
from fray_operator.node_pools import build_provider
from fray_operator.settings import OperatorSettings
from tests.chart.rendering import NAMESPACE, find, operator_pod, render
from tests.chart.value_tables import GKE

DIGEST = "sha256:" + "0" * 64


def container(values: dict[str, Any] | None = None, **where: str) -> dict[str, Any]:
    (only,) = operator_pod(render(values, **where))["spec"]["containers"]
    return only  # type: ignore[no-any-return]


def settings(values: dict[str, Any] | None = None, **where: str) -> OperatorSettings:
    """What the operator understands of its environment."""
    resolved = {"metadata.namespace": where.get("namespace", NAMESPACE), "metadata.name": "fray-operator-abc"}
    environ = {
        entry["name"]: entry["value"]
        if "value" in entry
        else resolved[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for entry in container(values, **where)["env"]
    }
    return OperatorSettings.from_env(environ)


def test_defaults_of_the_chart_are_those_of_the_operator() -> None:
    assert settings() == OperatorSettings(pod_name="fray-operator-abc")


def test_every_value_reaches_the_operator() -> None:
    values = {
        "scope": "namespace",
        "registry": "registry.example/team/",
        "runtimeImage": {"tag": "2"},
        "jobs": {"serviceAccount": {"name": "worker"}},
        "leaseSeconds": 30,
        "backoff": {"seconds": 0.5, "capSeconds": 86400},
        "avoidSeconds": 0,
        "settleSeconds": 0,
        "unreachableSeconds": 300,
        "metadataServer": False,
        "kueue": {"elasticJobs": True},
        "httpPort": 9090,
        "logLevel": "DEBUG",
        "extraEnv": [{"name": "FRAY_WORKERS", "value": "3"}],
    }
    assert settings(values, namespace="team") == OperatorSettings(
        namespaces=("team",),
        read_nodes=False,
        runtime_image="registry.example/team/fray-runtime:2",
        injector_image="registry.example/team/fray-operator:0.1.0",
        service_account="worker",
        metadata_server=False,
        kueue_elastic_jobs=True,
        pod_name="fray-operator-abc",
        lease_namespace="team",
        lease_seconds=30.0,
        http_port=9090,
        backoff_seconds=0.5,
        backoff_cap_seconds=86400.0,
        avoid_seconds=0.0,
        settle_seconds=0.0,
        unreachable_seconds=300.0,
        workers=3,
        log_level="DEBUG",
    )


def test_every_value_of_node_pools_reaches_the_operator() -> None:
    more = {"maxPools": 2, "idleSeconds": 60, "zones": ["us-east5-a", "us-east5-b"], "spot": True}
    account = "nodes@p.iam.gserviceaccount.com"
    assert settings({"nodePools": {**GKE, **more, "serviceAccount": account}}) == OperatorSettings(
        pod_name="fray-operator-abc",
        node_pools="gke",
        gke_cluster="projects/p/locations/us-east5/clusters/c",
        max_pools=2,
        max_chips=("nvidia-l4=8", "tpu-v5p-slice=64"),
        pool_idle_seconds=60.0,
        pool_zones=("us-east5-a", "us-east5-b"),
        pool_spot=True,
        pool_service_account=account,
    )
    least = settings({"nodePools": GKE})
    assert build_provider(least) is not None
    assert replace(least, node_pools="none", gke_cluster=None, max_chips=()) == settings()


def test_no_variable_is_set_twice() -> None:
    names = [entry["name"] for entry in container({"extraEnv": [{"name": "A", "value": "1"}]})["env"]]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "fray-operator:0.1.0"),
        ({"image": {"tag": "dev"}}, "fray-operator:dev"),
        ({"registry": "r.example:5000/a"}, "r.example:5000/a/fray-operator:0.1.0"),
        ({"image": {"repository": "r.example/op", "tag": "x", "digest": DIGEST}}, f"r.example/op@{DIGEST}"),
    ],
)
def test_image_reference(values: dict[str, Any], expected: str) -> None:
    assert container(values)["image"] == expected


def test_pull_settings() -> None:
    pod = operator_pod(render({"image": {"pullPolicy": "Never", "pullSecrets": ["a", "b"]}}))["spec"]
    assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert pod["containers"][0]["imagePullPolicy"] == "Never"


def test_pod_is_confined_as_the_restricted_standard_asks_and_more() -> None:
    pod = operator_pod(render())["spec"]
    (only,) = pod["containers"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert only["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    assert [sorted(volume) for volume in pod["volumes"]] == [["emptyDir", "name"]]
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)


def test_probes_ask_the_operators_own_endpoints_on_its_port() -> None:
    only = container({"httpPort": 9090})
    assert only["ports"] == [{"name": "http", "containerPort": 9090, "protocol": "TCP"}]
    paths = {probe: only[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {
        "startupProbe": {"path": "/healthz", "port": "http"},
        "livenessProbe": {"path": "/healthz", "port": "http"},
        "readinessProbe": {"path": "/readyz", "port": "http"},
    }


def test_replicas_prefer_different_nodes_and_zones_and_keep_off_accelerators_and_spot() -> None:
    pod = operator_pod(render())
    affinity = pod["spec"]["affinity"]
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    keys = {
        expression["key"]
        for term in affinity["nodeAffinity"][preferred]
        for expression in term["preference"]["matchExpressions"]
    }
    assert keys == {
        node_labels.LABEL_TPU_ACCELERATOR,
        node_labels.LABEL_GPU_ACCELERATOR,
        node_labels.LABEL_SPOT,
    }
    apart = [term["podAffinityTerm"] for term in affinity["podAntiAffinity"][preferred]]
    assert [term["topologyKey"] for term in apart] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    for term in apart:
        assert term["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in str(affinity)


def test_placement_and_resources_can_be_set() -> None:
    toleration = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
    values = {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]
                }
            }
        },
        "nodeSelector": {"pool": "system"},
        "tolerations": [toleration],
        "priorityClassName": "system-cluster-critical",
        "resources": {"requests": {"cpu": 2}, "limits": {"memory": "1Gi"}},
    }
    pod = operator_pod(render(values))["spec"]
    assert pod["affinity"] == values["affinity"]
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["tolerations"] == [toleration]
    assert pod["priorityClassName"] == "system-cluster-critical"
    assert pod["containers"][0]["resources"] == {
        "requests": {"cpu": 2, "memory": "256Mi"},
        "limits": {"memory": "1Gi"},
    }


def test_labels_and_annotations_of_pods_can_be_added_without_touching_the_selector() -> None:
    objects = render({"podLabels": {"team": "ml"}, "podAnnotations": {"note": "x"}})
    template = operator_pod(objects)
    assert template["metadata"]["labels"]["team"] == "ml"
    assert template["metadata"]["annotations"] == {"note": "x"}
    assert find(objects, "Deployment")["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "fray-operator",
        "app.kubernetes.io/instance": "fray",
    }


def test_a_rollout_starts_the_new_replica_before_it_ends_an_old_one() -> None:
    deployment = find(render(), "Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}

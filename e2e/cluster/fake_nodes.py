"""Nodes that exist only as objects, for tests of scale: KWOK answers for their kubelets.

A pod on one is Running at once and never runs anything. Job pods succeed after the time in their annotation
`pod-complete.stage.kwok.x-k8s.io/delay` (such as `30s`; default at once); one labelled
`pod-container-running-failed.stage.kwok.x-k8s.io: "true"` fails instead. Pods must tolerate the taint
`FAKE_TAINT`, so that real and fake nodes never mix by accident.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.api import Api, ApiError, Response
from e2e.cluster.build import Binaries, module_source
from e2e.cluster.command import await_condition
from e2e.cluster.credentials import ADMIN_KUBECONFIG
from e2e.cluster.daemons import log_tail, start_daemon
from e2e.cluster.layout import Host, build_cpu_host, build_tpu_host, parse_taint
from e2e.cluster.node_status import DISK, DISK_SIZE
from e2e.cluster.paths import host_directory

__all__ = [
    "FAKE_TAINT",
    "apply_fake_nodes",
    "build_fake_node",
    "build_fake_pools",
    "build_kwok_command",
    "build_kwok_config",
    "start_kwok",
]

FAKE_TAINT = "kwok.x-k8s.io/node=fake:NoSchedule"
_ANNOTATION = "kwok.x-k8s.io/node"
_LABEL = "fray.test/fake"
_ADDRESS = "127.0.0.1:10247"
_READY_SECONDS = 180.0
_STAGES = (
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
    "pod/general/pod-complete.yaml",
    "pod/chaos/pod-container-running-failed.yaml",
)
_BEGAN = ("startedAt: {{ $now", "startedAt: {{ $.metadata.creationTimestamp")
"""What a stage writes of when a container began, and what it shall: KWOK may go through a stage twice."""


def build_fake_pools(*, tpu_pools: int, cpu_nodes: int) -> list[Host]:
    """Hosts of `tpu_pools` v5p-16 pools of two, and of one pool for ordinary pods."""
    tpus = [build_tpu_host(0, f"fake-tpu-{pool}", index) for pool in range(tpu_pools) for index in range(2)]
    return [*tpus, *(build_cpu_host(0, f"fake-cpu-{index}") for index in range(cpu_nodes))]


def build_fake_node(host: Host) -> dict[str, Any]:
    """The Node object of a host that is only imagined."""
    resources = {"cpu": "32", "memory": "128Gi", "pods": "110", DISK: DISK_SIZE}
    resources |= {name: str(count) for name, count in host.chips.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": host.name,
            "annotations": {_ANNOTATION: "fake"},
            "labels": {
                **host.labels,
                _LABEL: "true",
                "kubernetes.io/hostname": host.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            },
        },
        "spec": {"taints": [parse_taint(text) for text in (*host.taints, FAKE_TAINT)]},
        "status": {"capacity": resources, "allocatable": resources},
    }


def build_kwok_config(stages_folder: Path) -> str:
    """KWOK's stages for pods: upstream's own, but nothing waits unless its annotation says so.

    And the time at which a container began never changes, as on a kubelet.
    """
    stages = []
    for name in _STAGES:
        stage = yaml.safe_load((stages_folder / name).read_text(encoding="utf-8"))
        delay = stage["spec"].get("delay")
        if delay is not None:
            delay["durationMilliseconds"] = 0
            delay.pop("jitterDurationMilliseconds", None)
            delay.pop("jitterDurationFrom", None)
        template = stage["spec"]["next"].get("statusTemplate")
        if template is not None:
            stage["spec"]["next"]["statusTemplate"] = template.replace(*_BEGAN)
        stages.append(stage)
    return yaml.safe_dump_all(stages, sort_keys=False)


def start_kwok(host: Host, binaries: Binaries) -> None:
    """Start KWOK on a host; harmless when it runs. Raises ClusterError."""
    directory = host_directory(host.name)
    config = directory / "kwok.yaml"
    config.write_text(build_kwok_config(module_source("kwok") / "kustomize" / "stage"))
    command = build_kwok_command(str(binaries["kwok"]), kubeconfig=ADMIN_KUBECONFIG, config=config)
    start_daemon(host.name, "kwok", [*command, f"--server-address={_ADDRESS}"], cwd=directory)


def build_kwok_command(program: str, *, kubeconfig: Path, config: Path) -> list[str]:
    """KWOK for the nodes that are its own by their annotation."""
    return [
        program,
        f"--kubeconfig={kubeconfig}",
        f"--config={config}",
        f"--manage-nodes-with-annotation-selector={_ANNOTATION}=fake",
        "--node-lease-duration-seconds=40",
        "--cidr=10.245.0.0/16",
    ]


def apply_fake_nodes(api: Api, hosts: list[Host], *, kwok_host: Host) -> None:
    """Make exactly these fake nodes exist, and return once all are Ready. Raises ApiError, NotReadyError."""
    wanted = {host.name: host for host in hosts}
    existing = {node["metadata"]["name"] for node in _list(api)}
    for name in existing - wanted.keys():
        _require(f"fake node {name} can't be deleted", api.delete(f"/api/v1/nodes/{name}"))
    for name in wanted.keys() - existing:
        _require(
            f"fake node {name} can't be created", api.post("/api/v1/nodes", build_fake_node(wanted[name]))
        )
    await_condition(
        f"{len(wanted)} fake nodes are Ready",
        lambda: _ready_names(api) == wanted.keys(),
        timeout=_READY_SECONDS,
        details=lambda: log_tail(kwok_host.name, "kwok"),
    )


def _list(api: Api) -> list[dict[str, Any]]:
    answer = api.get("/api/v1/nodes", labelSelector=f"{_LABEL}=true")
    _require("nodes can't be listed", answer)
    nodes: list[dict[str, Any]] = answer.body["items"]
    return nodes


def _ready_names(api: Api) -> set[str]:
    return {
        node["metadata"]["name"]
        for node in _list(api)
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
    }


def _require(problem: str, answer: Response) -> None:
    if not answer.ok:
        raise ApiError(problem, answer)

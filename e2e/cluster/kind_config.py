"""The kind config of a cluster: the hosts of `layout`, as the nodes that kind makes of them.

Pure data. kind names its nodes itself, by their order and role, so a host has another name here; its number,
labels, taints and chips are the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from e2e.cluster.kubeconfig import CONTEXT
from e2e.cluster.layout import POD_NETWORK, SERVICE_NETWORK, Host, Layout, parse_taint

__all__ = ["CLUSTER", "build_kind_config", "rename_hosts"]

CLUSTER = CONTEXT
"""kind's name for the cluster; the names of its containers, and so of its nodes, begin with it."""

_UNPRIVILEGED: tuple[dict[str, Any], ...] = (
    {
        "kind": "KubeletConfiguration",
        "featureGates": {"KubeletInUserNamespace": True},
        "localStorageCapacityIsolation": False,
    },
    {
        "kind": "KubeProxyConfiguration",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    },
)


def rename_hosts(layout: Layout) -> Layout:
    """The same hosts under the names that kind gives their nodes, in the order of its config.

    Source: `MakeNodeNamer` in kind's pkg/cluster/internal/providers/common/namer.go.
    """
    renamed = []
    for host in layout.hosts:
        # The workers are numbered from the second on.
        suffix = (
            "control-plane" if host.is_control_plane else f"worker{host.number if host.number > 1 else ''}"
        )
        renamed.append(replace(host, name=f"{CLUSTER}-{suffix}"))
    return Layout(tuple(renamed))


def build_kind_config(layout: Layout, *, image: str | None = None) -> dict[str, Any]:
    """A `kind.x-k8s.io/v1alpha4` Cluster with a node for each host.

    Parameters: `image` that nodes are started from, by default the one that kind was released with. One that
    was made here runs where no container may have CAP_SYS_RESOURCE, so its nodes do without.
    """
    config: dict[str, Any] = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": CLUSTER,
        "networking": {"podSubnet": POD_NETWORK, "serviceSubnet": SERVICE_NETWORK},
        "nodes": [_node(host) for host in layout.hosts],
    }
    if image is not None:
        config["nodes"] = [{**node, "image": image} for node in config["nodes"]]
        config["kubeadmConfigPatches"] = [yaml.safe_dump(patch, sort_keys=False) for patch in _UNPRIVILEGED]
    return config


def _node(host: Host) -> dict[str, Any]:
    # Of a first control plane, kubeadm reads InitConfiguration, of all others JoinConfiguration. A list,
    # even an empty one, takes the place of the taint that it would give a control plane by itself.
    patch = {
        "kind": "InitConfiguration" if host.is_control_plane else "JoinConfiguration",
        "nodeRegistration": {"taints": [parse_taint(text) for text in host.taints]},
    }
    return {
        "role": "control-plane" if host.is_control_plane else "worker",
        "labels": dict(host.labels),
        "kubeadmConfigPatches": [yaml.safe_dump(patch, sort_keys=False)],
    }

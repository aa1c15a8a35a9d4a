"""Configuration files of a node's three programs (containerd, kubelet, kube-proxy) and its pod network.

Pure. The settings that are not obvious let all of it run where a container engine may not: without
CAP_SYS_RESOURCE, with swap, on cgroup v1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.cluster.cgroups import pod_group
from e2e.cluster.layout import DNS_ADDRESS, POD_NETWORK, Host, parse_taint

__all__ = [
    "CONTAINERD_SOCKET",
    "build_cni_config",
    "build_containerd_config",
    "build_kube_proxy_config",
    "build_kubelet_config",
]

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""As seen on every host."""


def build_containerd_config(*, directory: Path, cni_plugins: Path, pause_image: str) -> str:
    """The TOML of containerd; data and pod-network settings under the host's `directory`."""
    return f"""\
version = 2
root = {json.dumps(str(directory / "containerd"))}
state = "/run/containerd"

[grpc]
address = {json.dumps(CONTAINERD_SOCKET)}

[plugins."io.containerd.internal.v1.opt"]
path = {json.dumps(str(directory / "containerd-opt"))}

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = {json.dumps(pause_image)}
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {json.dumps(str(cni_plugins))}
conf_dir = {json.dumps(str(directory / "cni-conf"))}

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def build_cni_config(subnet: str, *, mtu: int) -> dict[str, Any]:
    """The pod network of a host whose pods get their addresses from `subnet`: a routed cable to each pod.

    Unlike on a bridge, traffic between pods of one host meets the host's service rules too.
    """
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/var/lib/cni/networks",
    }
    return {
        "cniVersion": "0.4.0",
        "name": "fray",
        "plugins": [
            {"type": "ptp", "mtu": mtu, "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def build_kubelet_config(
    host: Host, *, authority_file: Path, resolv_conf: Path, directory: Path
) -> dict[str, Any]:
    """KubeletConfiguration of a host."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority_file)},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(resolv_conf),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": pod_group(host.name),
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "featureGates": {"KubeletInUserNamespace": True},
        "localStorageCapacityIsolation": False,
        # All hosts share the machine's disk and memory: none may evict for what another uses.
        "evictionHard": {
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
            "memory.available": "50Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
        # Images are imported, so one that was collected could not be fetched again.
        "imageGCHighThresholdPercent": 100,
        "registerWithTaints": [parse_taint(text) for text in host.taints],
        # Changed secrets reach running pods within this time; the JobSet controller waits for its
        # certificate so.
        "syncFrequency": "5s",
        "volumePluginDir": str(directory / "volume-plugins"),
    }


def build_kube_proxy_config(host: Host, *, kubeconfig: Path) -> dict[str, Any]:
    """KubeProxyConfiguration of a host; it may not touch the machine's connection-tracking limits."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": POD_NETWORK,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "hostnameOverride": host.name,
        "mode": "iptables",
        "oomScoreAdj": 0,
    }

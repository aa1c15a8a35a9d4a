"""Run a node on a host: containerd, kubelet and kube-proxy.

A node can be crashed and started again, which is how tests make real node failures.
"""

from __future__ import annotations

import json
from pathlib import Path

from e2e.cluster import cgroups, node_status
from e2e.cluster.api import Api
from e2e.cluster.build import Binaries
from e2e.cluster.command import await_condition, run
from e2e.cluster.credentials import AUTHORITY_FILE, node_kubeconfig, proxy_kubeconfig
from e2e.cluster.daemons import enter_command, find_daemon, is_held, log_tail, start_daemon
from e2e.cluster.errors import CommandError, MachineError
from e2e.cluster.images import PAUSE_IMAGE
from e2e.cluster.layout import Host
from e2e.cluster.machine import find_cni_plugins, uplink_mtu
from e2e.cluster.node_config import (
    CONTAINERD_SOCKET,
    build_cni_config,
    build_containerd_config,
    build_kube_proxy_config,
    build_kubelet_config,
)
from e2e.cluster.paths import host_directory

__all__ = ["await_node_ready", "is_node_running", "start_containerd", "start_kube_proxy", "start_kubelet"]

_DAEMONS = {"containerd": "containerd", "kubelet": "kubelet", "kube-proxy": "kube-proxy"}
_RESOLV_CONFS = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))
_START_SECONDS = 180.0


def start_containerd(host: Host) -> None:
    """Start the container runtime of a host; returns once it answers.

    Raises NotReadyError, MachineError.
    """
    directory = host_directory(host.name)
    plugins = find_cni_plugins()
    if plugins is None:
        raise MachineError("the container network plugins are gone", "run `python -m e2e.cluster up` again")
    network = directory / "cni-conf"
    network.mkdir(parents=True, exist_ok=True)
    (network / "10-fray.conflist").write_text(json.dumps(build_cni_config(host.pod_subnet, mtu=uplink_mtu())))
    config = directory / "containerd.toml"
    config.write_text(
        build_containerd_config(directory=directory, cni_plugins=plugins, pause_image=PAUSE_IMAGE)
    )
    start_daemon(host.name, "containerd", ["containerd", "--config", str(config)], cwd=directory)
    client = [*enter_command(host.name), "ctr", f"--address={CONTAINERD_SOCKET}", "version"]

    def answers() -> bool:
        try:
            run(client, timeout=10)
        except CommandError:
            return False
        return True

    await_condition(
        f"containerd answers on {host.name}",
        answers,
        timeout=_START_SECONDS,
        details=lambda: log_tail(host.name, "containerd"),
    )


def start_kube_proxy(host: Host, binaries: Binaries) -> None:
    """Start the kube-proxy of a host. One that runs ends itself: its configuration is written anew."""
    directory = host_directory(host.name)
    config = directory / "kube-proxy.json"
    config.write_text(json.dumps(build_kube_proxy_config(host, kubeconfig=proxy_kubeconfig(host.name))))
    command = [str(binaries["kube-proxy"]), f"--config={config}"]
    start_daemon(host.name, "kube-proxy", command, cwd=directory)


def start_kubelet(host: Host, binaries: Binaries) -> None:
    """Start the kubelet of a host whose containerd runs; the rest of the host stays as it is."""
    directory = host_directory(host.name)
    resolv_conf = directory / "resolv.conf"
    resolv_conf.write_bytes(next(path for path in _RESOLV_CONFS if path.exists()).read_bytes())
    cgroups.create_pod_group(host.name)
    kubelet_config = directory / "kubelet.json"
    content = build_kubelet_config(
        host, authority_file=AUTHORITY_FILE, resolv_conf=resolv_conf, directory=directory
    )
    kubelet_config.write_text(json.dumps(content))
    kubelet = [
        str(binaries["kubelet"]),
        f"--config={kubelet_config}",
        f"--kubeconfig={node_kubeconfig(host.name)}",
        f"--hostname-override={host.name}",
        f"--node-ip={host.address}",
        f"--node-labels={','.join(f'{key}={value}' for key, value in host.labels.items())}",
    ]
    start_daemon(host.name, "kubelet", kubelet, cwd=directory)


def await_node_ready(host: Host, api: Api) -> None:
    """Return once the node is Ready and its chips can be allocated. Raises NotReadyError."""
    node_status.await_ready(host, api, details=lambda: log_tail(host.name, "kubelet"))


def is_node_running(host: Host) -> bool:
    """Whether all three programs of a node run, and none is held."""
    found = [find_daemon(host.name, name, program) for name, program in _DAEMONS.items()]
    return all(pid is not None and not is_held(pid) for pid in found)

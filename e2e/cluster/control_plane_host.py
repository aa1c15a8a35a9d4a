"""Run the control plane of a whole cluster on its first host.

The command lines are in `servers`; a control plane without any cluster is `controlplane`.
"""

from __future__ import annotations

import http.client

from e2e.cluster.api import Api
from e2e.cluster.build import Binaries
from e2e.cluster.command import await_condition
from e2e.cluster.credentials import ADMIN_FILES, AUTHORITY_FILE, control_plane_directory
from e2e.cluster.daemons import find_daemon, log_tail, require_daemon, start_daemon
from e2e.cluster.layout import APISERVER_PORT, Layout
from e2e.cluster.servers import (
    build_apiserver_command,
    build_controller_manager_command,
    build_etcd_command,
    build_scheduler_command,
)

__all__ = ["connect", "is_control_plane_running", "is_ready", "start_control_plane"]

SERVERS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_READY_SECONDS = 180.0
_ACCESS_FLAGS = (
    "--client-ca-file=ca.crt",
    "--kubelet-client-certificate=kubelet-client.crt",
    "--kubelet-client-key=kubelet-client.key",
    # By address: the names of the hosts are in no DNS.
    "--kubelet-preferred-address-types=InternalIP",
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
)


def connect(layout: Layout) -> Api:
    """An administrator's client of the cluster. Raises OSError when it was never made."""
    certificate, key = (str(path) for path in ADMIN_FILES)
    return Api(layout.url, authority=AUTHORITY_FILE.read_bytes(), client=(certificate, key))


def is_ready(api: Api) -> bool:
    """Whether the apiserver answers and calls itself ready."""
    try:
        return api.get("/readyz").ok and api.get("/api/v1/namespaces/default").ok
    except (OSError, http.client.HTTPException):
        return False


def is_control_plane_running(layout: Layout) -> bool:
    """Whether all four servers run."""
    host = layout.control_plane.name
    return all(find_daemon(host, name, name) is not None for name in SERVERS)


def start_control_plane(layout: Layout, binaries: Binaries) -> Api:
    """Start the four servers; returns a client once the apiserver is ready. Raises NotReadyError."""
    host = layout.control_plane
    apiserver = build_apiserver_command(
        str(binaries["kube-apiserver"]), address=host.address, port=APISERVER_PORT, extra=_ACCESS_FLAGS
    )
    commands = {
        "etcd": build_etcd_command(str(binaries["etcd"])),
        "kube-apiserver": apiserver,
        "kube-controller-manager": build_controller_manager_command(str(binaries["kube-controller-manager"])),
        "kube-scheduler": build_scheduler_command(str(binaries["kube-scheduler"])),
    }
    api = connect(layout)
    for name in SERVERS:
        if name == "kube-controller-manager":
            _await_apiserver(layout, api)  # the other two end themselves when it does not answer
        start_daemon(host.name, name, commands[name], cwd=control_plane_directory(layout))
    return api


def _await_apiserver(layout: Layout, api: Api) -> None:
    host = layout.control_plane.name

    def ready_or_dead() -> bool:
        if is_ready(api):
            return True
        for name in ("etcd", "kube-apiserver"):
            require_daemon(host, name, name)
        return False

    await_condition(
        "the apiserver is ready",
        ready_or_dead,
        timeout=_READY_SECONDS,
        details=lambda: "\n".join(log_tail(host, name) for name in ("etcd", "kube-apiserver")),
    )

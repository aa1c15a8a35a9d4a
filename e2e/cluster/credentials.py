"""Keys, certificates and kubeconfigs of a cluster's components, made once per cluster.

How a certificate is made is in `certificates`; here is who gets one, and under which name.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from e2e.cluster.certificates import Authority, Pair, build_key_pem, write_private
from e2e.cluster.kubeconfig import build_kubeconfig, write_kubeconfig
from e2e.cluster.layout import BRIDGE_ADDRESS, Layout
from e2e.cluster.paths import SECRETS, host_directory

__all__ = [
    "ADMIN_FILES",
    "ADMIN_KUBECONFIG",
    "AUTHORITY_FILE",
    "MACHINE_FILES",
    "control_plane_directory",
    "node_kubeconfig",
    "proxy_kubeconfig",
    "write_secrets",
]

AUTHORITY_FILE = SECRETS / "ca.crt"
"""What everybody must trust."""

ADMIN_FILES = (SECRETS / "admin.crt", SECRETS / "admin.key")
"""Client certificate of the administrator."""

MACHINE_FILES = (SECRETS / "machine.crt", SECRETS / "machine.key")
"""Serving certificate for the machine's address among the hosts, where a test may put a proxy."""

ADMIN_KUBECONFIG = SECRETS / "kubeconfig"
"""The administrator's kubeconfig; users get a copy."""

_FIRST_SERVICE_ADDRESS = "10.96.0.1"
_SERVING_NAMES = (
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    _FIRST_SERVICE_ADDRESS,
)


def control_plane_directory(layout: Layout) -> Path:
    """Working directory of etcd, apiserver, controller-manager and scheduler."""
    return host_directory(layout.control_plane.name) / "control-plane"


def node_kubeconfig(host: str) -> Path:
    """The kubelet's kubeconfig on a host."""
    return host_directory(host) / "kubelet.kubeconfig"


def proxy_kubeconfig(host: str) -> Path:
    """kube-proxy's kubeconfig on a host."""
    return host_directory(host) / "kube-proxy.kubeconfig"


def write_secrets(layout: Layout) -> None:
    """Make a new authority and everything signed by it."""
    authority = Authority()
    SECRETS.mkdir(parents=True, exist_ok=True, mode=0o700)
    AUTHORITY_FILE.write_bytes(authority.certificate)
    _write_control_plane(authority, layout)
    for host in layout.hosts:
        host_directory(host.name).mkdir(parents=True, exist_ok=True)
        kubelet = authority.issue_client(f"system:node:{host.name}", ["system:nodes"])
        _write(node_kubeconfig(host.name), layout, authority, kubelet)
        proxy = authority.issue_client("system:kube-proxy")
        _write(proxy_kubeconfig(host.name), layout, authority, proxy)
    admin = authority.issue_client("fray-test-admin", ["system:masters"])
    machine = authority.issue_server("machine", [BRIDGE_ADDRESS])
    for files, pair in ((ADMIN_FILES, admin), (MACHINE_FILES, machine)):
        for path, content in zip(files, (pair.certificate, pair.key), strict=True):
            write_private(path, content)
    _write(ADMIN_KUBECONFIG, layout, authority, admin)


def _write_control_plane(authority: Authority, layout: Layout) -> None:
    folder = control_plane_directory(layout)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    serving = authority.issue_server("kube-apiserver", [layout.control_plane.address, *_SERVING_NAMES])
    write_private(folder / "server.crt", serving.certificate)
    write_private(folder / "server.key", serving.key)
    to_kubelets = authority.issue_client("kube-apiserver-kubelet-client", ["system:masters"])
    write_private(folder / "kubelet-client.crt", to_kubelets.certificate)
    write_private(folder / "kubelet-client.key", to_kubelets.key)
    write_private(folder / "accounts.key", build_key_pem())
    shutil.copyfile(AUTHORITY_FILE, folder / "ca.crt")
    for name in ("kube-controller-manager", "kube-scheduler"):
        _write(folder / f"{name}.kubeconfig", layout, authority, authority.issue_client(f"system:{name}"))


def _write(path: Path, layout: Layout, authority: Authority, client: Pair) -> None:
    write_kubeconfig(path, build_kubeconfig(url=layout.url, authority=authority.certificate, client=client))

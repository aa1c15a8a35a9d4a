"""Command lines of the control plane's servers, the same for a bare control plane and for a whole cluster.

Pure: nothing is started here. All paths in a command are relative to the server's working directory.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "SERVICE_RANGE",
    "build_apiserver_command",
    "build_controller_manager_command",
    "build_etcd_command",
    "build_scheduler_command",
]

# etcd wants host:port even for unix sockets; the whole text is the file's name, relative to its working
# directory, so a long temporary folder can't exceed the limit of 107 bytes for a socket's path.
_CLIENT_SOCKET = "unix://client:1"
_PEER_SOCKET = "unix://peer:1"

SERVICE_RANGE = "10.96.0.0/16"

# With the default of 20 requests a second, 500 one-pod JobSets take four times as long.
_FAST_CLIENT = ("--kube-api-qps=1000", "--kube-api-burst=2000", "--leader-elect=false")


def build_etcd_command(program: str) -> list[str]:
    """An etcd on unix sockets in its working directory: no port, so nothing to collide with."""
    return [
        program,
        "--name=fray",
        "--data-dir=data",
        "--unsafe-no-fsync",  # the data is thrown away
        "--log-level=warn",
        f"--listen-client-urls={_CLIENT_SOCKET}",
        f"--advertise-client-urls={_CLIENT_SOCKET}",
        f"--listen-peer-urls={_PEER_SOCKET}",
        f"--initial-advertise-peer-urls={_PEER_SOCKET}",
        f"--initial-cluster=fray={_PEER_SOCKET}",
    ]


def build_apiserver_command(program: str, *, address: str, port: int, extra: Sequence[str]) -> list[str]:
    """kube-apiserver on `address`:`port`, beside etcd in the same working directory.

    It reads server.crt, server.key (serving) and accounts.key (service-account tokens) from there; `extra`
    says how clients are authenticated and authorized.
    """
    return [
        program,
        f"--etcd-servers={_CLIENT_SOCKET}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--cert-dir=.",
        "--tls-cert-file=server.crt",
        "--tls-private-key-file=server.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=accounts.key",
        "--service-account-signing-key-file=accounts.key",
        "--allow-privileged=true",
        "--profiling=false",
        *extra,
    ]


def build_controller_manager_command(program: str) -> list[str]:
    """kube-controller-manager with its kubeconfig, accounts.key and ca.crt in its working directory."""
    return [
        program,
        "--kubeconfig=kube-controller-manager.kubeconfig",
        "--use-service-account-credentials=true",
        "--service-account-private-key-file=accounts.key",
        "--root-ca-file=ca.crt",
        "--concurrent-job-syncs=20",
        "--flex-volume-plugin-dir=volume-plugins",  # it would make the default one on the machine
        "--bind-address=127.0.0.1",
        "--profiling=false",
        *_FAST_CLIENT,
    ]


def build_scheduler_command(program: str) -> list[str]:
    """kube-scheduler with its kubeconfig in its working directory."""
    return [
        program,
        "--kubeconfig=kube-scheduler.kubeconfig",
        "--bind-address=127.0.0.1",
        "--profiling=false",
        *_FAST_CLIENT,
    ]

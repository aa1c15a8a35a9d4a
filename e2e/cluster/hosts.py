"""Hosts: the machines that a cluster of one machine pretends to have.

A host is a network namespace and a mount namespace with its own /run and /var/log, joined to the others by
a bridge. All of it vanishes with its processes. What runs on a host is not decided here.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from e2e.cluster.command import run
from e2e.cluster.daemons import enter_command, holder_pid, start_host
from e2e.cluster.layout import BRIDGE_ADDRESS, HOST_NETWORK, POD_NETWORK, Host, Layout
from e2e.cluster.machine import BRIDGE, uplink_mtu
from e2e.cluster.paths import host_directory

__all__ = ["create_host", "remove_mount_points"]

# Folders that each host has to itself, with their names on its disk: paths fixed in the kubelet (device
# plugins), in the container network library and in what collects logs.
_PRIVATE = {Path("/var/lib/cni"): "cni", Path("/var/lib/kubelet"): "kubelet", Path("/var/log"): "log"}


def create_host(host: Host, layout: Layout) -> None:
    """Make a host and plug it in: it reaches the other hosts, their pods and whatever the machine reaches."""
    directory = host_directory(host.name)
    for path, name in _PRIVATE.items():
        (directory / name).mkdir(parents=True, exist_ok=True)
        path.mkdir(parents=True, exist_ok=True)  # on the machine: something to mount on
    start_host(host.name, _build_mount_script(directory))
    mtu = str(uplink_mtu())
    pid = str(holder_pid(host.name))
    run(
        [
            "ip",
            "link",
            "add",
            host.link,
            "mtu",
            mtu,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "mtu",
            mtu,
            "netns",
            pid,
        ]
    )
    run(["ip", "link", "set", host.link, "master", BRIDGE, "up"])
    enter = enter_command(host.name)
    run([*enter, "ip", "-batch", "-"], stdin=_build_network_batch(host, layout))
    run([*enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
    # Between pods the sender stays; towards anything else it becomes the host, as on a real node.
    leaving = ["-s", POD_NETWORK, "!", "-d", POD_NETWORK]
    run([*enter, "iptables", "-w", "-t", "nat", "-A", "POSTROUTING", *leaving, "-j", "MASQUERADE"])


def remove_mount_points() -> None:
    """Remove the folders that were made on the machine to mount on, unless the machine itself uses them."""
    for path in _PRIVATE:
        with suppress(OSError):  # not empty, or gone
            path.rmdir()


def _build_mount_script(directory: Path) -> str:
    return "\n".join(
        [
            "mount --make-rshared /",
            "mount -t tmpfs -o mode=755 tmpfs /run",
            "mkdir /run/lock",
            *(f"mount --bind {directory / name} {path}" for path, name in _PRIVATE.items()),
        ]
    )


def _build_network_batch(host: Host, layout: Layout) -> str:
    prefix = HOST_NETWORK.rpartition("/")[2]
    routes = [
        f"route add {other.pod_subnet} via {other.address}"
        for other in layout.hosts
        if other.name != host.name
    ]
    lines = [
        "link set lo up",
        f"address add {host.address}/{prefix} dev eth0",
        "link set eth0 up",
        f"route add default via {BRIDGE_ADDRESS}",
        *routes,
    ]
    return "\n".join(lines) + "\n"

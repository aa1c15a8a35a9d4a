"""What the cluster needs of the machine itself: its packages, and the network between the hosts.

Everything that `apply_network` changes, `remove_network` puts back. Nothing inside a host is set here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from e2e.cluster.command import run
from e2e.cluster.errors import CommandError, MachineError
from e2e.cluster.layout import BRIDGE_ADDRESS, HOST_NETWORK, LINK_PREFIX, POD_NETWORK, SERVICE_NETWORK
from e2e.cluster.lock import hold_lock
from e2e.cluster.paths import STATE

__all__ = [
    "BRIDGE",
    "apply_network",
    "find_cni_plugins",
    "install_node_packages",
    "install_packages",
    "remove_link",
    "remove_network",
    "require_root",
    "uplink_mtu",
]

BRIDGE = "fray0"
_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ethtool": "ethtool",
    "socat": "socat",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
}
_PACKAGES_LOCK = Path(tempfile.gettempdir()) / "fray-debian-packages.lock"
_CNI_PACKAGE = "containernetworking-plugins"
_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_DEVICES = Path("/sys/class/net")
_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
_SAVED_FORWARD = STATE / "ip_forward"
# `! -o`: with br_netfilter, frames between two hosts pass here too and must keep their sender.
_MASQUERADE = ("POSTROUTING", "-s", HOST_NETWORK, "!", "-o", BRIDGE, "-j", "MASQUERADE")


def require_root() -> None:
    """Raise MachineError unless this process may make namespaces and control groups."""
    if os.geteuid() != 0:
        raise MachineError("a whole cluster needs root", "run the same command with sudo")


def install_node_packages(progress: Callable[[str], None]) -> None:
    """Install what hosts need and this machine lacks. Raises MachineError."""
    plugins = {} if find_cni_plugins() is not None else {"its plugins of container networks": _CNI_PACKAGE}
    install_packages(_PACKAGES | plugins, progress)


def install_packages(packages: Mapping[str, str], progress: Callable[[str], None]) -> None:
    """Install those of Debian's `packages`, by the program that each is needed for, whose program is missing.

    Raises MachineError.
    """

    def find_missing() -> list[str]:
        return [package for program, package in packages.items() if shutil.which(program) is None]

    if not (missing := find_missing()):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise MachineError(f"not installed: {', '.join(missing)}", "install them, then run it again")
    names = " ".join(missing)
    waiting = partial(progress, f"waiting for another process that installs Debian packages: {names}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends"]
    try:
        # A second apt-get at the same time would fail; images may be built while a cluster is made.
        with hold_lock(_PACKAGES_LOCK, on_wait=waiting):
            if missing := find_missing():
                progress(f"installing Debian packages: {' '.join(missing)}")
                run(["apt-get", "update", "-q"], environment=environment)
                run([*install, *missing], environment=environment)
    except CommandError as error:
        raise MachineError(f"could not install {names}", "install them by hand, then run it again") from error


def find_cni_plugins() -> Path | None:
    """Folder of the container network plugins, None when they are not installed."""
    return next((folder for folder in _CNI_FOLDERS if (folder / "ptp").exists()), None)


def uplink_mtu() -> int:
    """Largest packet that leaves this machine in one piece; nothing inside the cluster may be larger."""
    links = json.loads(run(["ip", "-json", "link"]))
    by_name = {link["ifname"]: int(link["mtu"]) for link in links}
    routes = json.loads(run(["ip", "-json", "route", "show", "default"]))
    return min([by_name[route["dev"]] for route in routes if route.get("dev") in by_name], default=1500)


def apply_network() -> None:
    """Make the bridge, forwarding and the one masquerading rule; harmless when they exist."""
    if not _SAVED_FORWARD.exists():
        _SAVED_FORWARD.write_text(_FORWARD.read_text())
    _FORWARD.write_text("1")
    if not (_DEVICES / BRIDGE).exists():
        run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    run(["ip", "link", "set", BRIDGE, "mtu", str(uplink_mtu()), "up"])
    prefix = HOST_NETWORK.rpartition("/")[2]
    run(["ip", "address", "replace", f"{BRIDGE_ADDRESS}/{prefix}", "dev", BRIDGE])
    for network in (POD_NETWORK, SERVICE_NETWORK):
        # A call to a pod or service that has no rule yet must not leave through the default route.
        run(["ip", "route", "replace", "blackhole", network])
    try:
        run(["iptables", "-w", "-t", "nat", "-C", *_MASQUERADE])
    except CommandError:
        run(["iptables", "-w", "-t", "nat", "-A", *_MASQUERADE])


def remove_link(name: str) -> None:
    """Remove a network device of the machine; harmless when there is none."""
    if (_DEVICES / name).exists():
        with contextlib.suppress(CommandError):  # gone by now, with its namespace
            run(["ip", "link", "delete", name])


def remove_network() -> None:
    """Undo `apply_network`, and remove the links of all hosts; harmless when there is nothing."""
    # Found by name, not by layout: a run that died may have had another one.
    for device in _DEVICES.glob(f"{LINK_PREFIX}*"):
        remove_link(device.name)
    remove_link(BRIDGE)
    for network in (POD_NETWORK, SERVICE_NETWORK):
        if run(["ip", "route", "show", "type", "blackhole", network]).strip():
            run(["ip", "route", "delete", "blackhole", network])
    if shutil.which("iptables") is not None:
        with contextlib.suppress(CommandError):  # no such rule
            while True:
                run(["iptables", "-w", "-t", "nat", "-D", *_MASQUERADE])
    if _SAVED_FORWARD.exists():
        _FORWARD.write_text(_SAVED_FORWARD.read_text())

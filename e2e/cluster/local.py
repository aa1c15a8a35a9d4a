"""The cluster provider `local`: a whole cluster on this one machine, without any container engine.

`up` makes it or finds it, `down` removes every trace, both from any state that a killed run left. The steps
are in the other files; here is their order.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from e2e.cluster import addons, cgroups, images, kueue, node, node_status
from e2e.cluster.api import Api
from e2e.cluster.build import Binaries, build, module_source
from e2e.cluster.certificates import write_private
from e2e.cluster.control_plane_host import connect as connect_admin
from e2e.cluster.control_plane_host import is_control_plane_running, is_ready, start_control_plane
from e2e.cluster.credentials import ADMIN_KUBECONFIG, write_secrets
from e2e.cluster.daemons import join_command
from e2e.cluster.errors import MachineError
from e2e.cluster.fake_nodes import apply_fake_nodes, build_fake_pools, start_kwok
from e2e.cluster.hosts import create_host, remove_mount_points
from e2e.cluster.layout import Host, Layout
from e2e.cluster.lock import hold_lock
from e2e.cluster.machine import (
    apply_network,
    install_node_packages,
    remove_link,
    remove_network,
    require_root,
)
from e2e.cluster.options import Options, Record, derive_fingerprint, describe_reuse, find_fault
from e2e.cluster.paths import KUBECONFIG, LOCK, LOGS, STATE
from e2e.cluster.userland import fetch_busybox

__all__ = [
    "Options",
    "connect",
    "crash_host",
    "current_layout",
    "down",
    "import_images",
    "install_kueue",
    "observe_health",
    "restart_apiserver",
    "restore_host",
    "set_fake_nodes",
    "up",
]

_PROGRAMS = (
    *("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler"),
    *("kubelet", "kube-proxy", "coredns", "jobset-controller", "helm"),
)
_WAITING = "waiting for another command that is changing the cluster"
_READY = STATE / "ready.json"


@dataclass(frozen=True)
class _Parts:
    """What was built or fetched beforehand, so that making the cluster needs no network."""

    binaries: Binaries
    busybox: Path


def up(options: Options, *, progress: Callable[[str], None] = print) -> Path:
    """Make the cluster, or find it healthy, of the same versions and with all hosts; returns the kubeconfig.

    Anything else that is there is removed first, with the reason told. On failure nothing stays but the logs.
    Raises ClusterError.
    """
    started = time.monotonic()
    options.layout()  # wrong options fail before anything is changed
    require_root()
    install_node_packages(progress)
    binaries = build(_PROGRAMS, progress=progress)
    module_source("jobset")
    busybox = fetch_busybox(progress)
    with hold_lock(LOCK, on_wait=partial(progress, _WAITING)):
        made, wanted = _read_record(), Record(options, derive_fingerprint())
        if made is not None:
            fault = find_fault(made, wanted, observe_health)
            if fault is None:
                progress(describe_reuse(made.options, options))
                return _copy_kubeconfig()
            progress(f"removing the cluster that there is: {fault}")
        _remove()
        try:
            _create(options.layout(), _Parts(binaries, busybox), progress)
            _READY.write_text(wanted.to_json())
        except BaseException:
            _remove(keep_logs=True)
            progress(f"it failed and was removed; its logs: {LOGS}")
            raise
        _copy_kubeconfig()
    progress(f"the cluster is up after {time.monotonic() - started:.0f} s; kubeconfig: {KUBECONFIG}")
    return KUBECONFIG


def down(*, progress: Callable[[str], None] = print) -> None:
    """Remove the cluster with all its processes, networks, groups and files; harmless when there is none.

    Raises ClusterError.
    """
    require_root()
    with hold_lock(LOCK, on_wait=partial(progress, _WAITING)):
        _remove()
    progress("the cluster is gone")


def current_layout() -> Layout:
    """The hosts of the cluster that is up. Raises MachineError when there is none."""
    record = _read_record()
    if record is None:
        raise MachineError("no cluster is up on this machine", "run `python -m e2e.cluster up`")
    return record.options.layout()


def connect() -> Api:
    """An administrator's client of the cluster that is up. Raises MachineError when there is none."""
    return connect_admin(current_layout())


def observe_health() -> dict[str, bool]:
    """Which things of the cluster work, by name. Raises MachineError when no cluster is up."""
    layout = current_layout()
    api = connect_admin(layout)
    ready = is_ready(api)
    return {
        "control plane runs": is_control_plane_running(layout),
        f"apiserver is ready at {layout.url}": ready,
        "JobSet's webhooks answer": ready and addons.is_jobset_serving(api),
        **{
            # Its Node may be gone or without chips although they run: a test may have been killed.
            f"node {host.name} runs": node.is_node_running(host) and ready and node_status.is_ready(host, api)
            for host in layout.hosts
        },
    }


def set_fake_nodes(*, tpu_pools: int, cpu_nodes: int, progress: Callable[[str], None] = print) -> None:
    """Give the running cluster exactly so many fake nodes, all Ready on return. Raises ClusterError."""
    layout = current_layout()
    hosts = build_fake_pools(tpu_pools=tpu_pools, cpu_nodes=cpu_nodes)
    start_kwok(layout.control_plane, build(["kwok"], progress=progress))
    apply_fake_nodes(connect_admin(layout), hosts, kwok_host=layout.control_plane)
    progress(f"{len(hosts)} fake nodes are Ready")


def install_kueue(*, progress: Callable[[str], None] = print) -> None:
    """Install Kueue into the running cluster; returns once it answers. Raises ClusterError."""
    layout, api = current_layout(), connect()
    if kueue.is_kueue_serving(api):
        return
    binaries = build(["kueue", "helm"], progress=progress)
    progress("installing Kueue")
    archive = images.write_kueue_archive(binaries["kueue"], STATE / "images")
    images.import_archives([archive], [host for host in layout.hosts if not host.taints])
    kueue.install_kueue(api, _helm(layout, binaries), kubeconfig=ADMIN_KUBECONFIG, home=STATE / "helm")
    kueue.await_kueue(api)


def crash_host(host: Host) -> None:
    """Take a host away as a power failure does: every process at once, its pods and its network too."""
    cgroups.kill_group(host.name)


def restore_host(host: Host) -> None:
    """Start a host that was crashed again; returns once its node is Ready with its chips.

    Its disk, and with it the imported images, is as it was. Raises ClusterError.
    """
    layout = current_layout()
    remove_link(host.link)
    create_host(host, layout)
    node.start_containerd(host)
    binaries = build(_PROGRAMS)
    node.start_kube_proxy(host, binaries)
    node.start_kubelet(host, binaries)
    node.await_node_ready(host, connect_admin(layout))


def restart_apiserver() -> None:
    """Kill the apiserver and start it again; returns once it is ready. Raises NotReadyError."""
    layout = current_layout()
    cgroups.kill_group(layout.control_plane.name, "kube-apiserver")
    start_control_plane(layout, build(_PROGRAMS))


def import_images(archives: Sequence[Path], *, hosts: Sequence[Host] | None = None) -> None:
    """Import docker-archive files into all hosts of the running cluster, or into those given.

    Pods then name the images as they are tagged in the archives. Raises MachineError, CommandError.
    """
    images.import_archives(archives, current_layout().hosts if hosts is None else hosts)


def _create(layout: Layout, parts: _Parts, progress: Callable[[str], None]) -> None:
    for folder in (STATE, STATE / "images", LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    STATE.chmod(0o700)
    progress(f"making {len(layout.hosts)} hosts: {', '.join(host.name for host in layout.hosts)}")
    apply_network()
    write_secrets(layout)
    for host in layout.hosts:
        create_host(host, layout)
    progress("starting the control plane")
    api = start_control_plane(layout, parts.binaries)
    progress("starting the nodes")
    base = images.write_base_archives(parts.busybox, STATE / "images")
    system = images.write_system_archives(parts.binaries, STATE / "images")

    def start_node(host: Host) -> None:
        node.start_containerd(host)
        images.import_archives([*base, *([] if host.taints else system)], [host])
        node.start_kube_proxy(host, parts.binaries)
        node.start_kubelet(host, parts.binaries)

    addons.install_coredns(api)
    with ThreadPoolExecutor(max_workers=3) as pool:
        helm = _helm(layout, parts.binaries)
        installing = pool.submit(
            addons.install_jobset, helm, kubeconfig=ADMIN_KUBECONFIG, home=STATE / "helm"
        )
        list(pool.map(start_node, layout.hosts))
        installing.result()
    _await_all(layout, api, progress)


def _helm(layout: Layout, binaries: Binaries) -> list[str]:
    return [*join_command(layout.control_plane.name, "helm"), str(binaries["helm"])]


def _await_all(layout: Layout, api: Api, progress: Callable[[str], None]) -> None:
    progress("waiting for the nodes")
    for host in layout.hosts:
        node.await_node_ready(host, api)
    progress("waiting for CoreDNS and JobSet")
    addons.await_coredns(api)
    addons.await_jobset(api)


def _remove(*, keep_logs: bool = False) -> None:
    """Undo everything, in the order that makes each step possible: processes first."""
    with suppress(FileNotFoundError):
        _READY.unlink()
    cgroups.remove_all()
    remove_network()
    remove_mount_points()
    if STATE.exists():
        for path in STATE.iterdir():
            if path == LOGS and keep_logs:
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not keep_logs:
            STATE.rmdir()
    with suppress(OSError):  # not there, or the folder holds something else too
        KUBECONFIG.unlink()
        KUBECONFIG.parent.rmdir()


def _read_record() -> Record | None:
    """What the cluster that is up was made as; None when none was ever finished."""
    try:
        return Record.from_json(_READY.read_text())
    except (FileNotFoundError, ValueError):
        return None


def _copy_kubeconfig() -> Path:
    """Give this checkout its kubeconfig, also for a cluster that another checkout made."""
    KUBECONFIG.parent.mkdir(parents=True, exist_ok=True)
    partial = KUBECONFIG.with_name(f".{KUBECONFIG.name}.partial")
    write_private(partial, ADMIN_KUBECONFIG.read_bytes())
    return partial.replace(KUBECONFIG)

"""The cluster provider `kind`: nodes are containers of a Docker engine, made by the kind CLI.

The same hosts as those of `local`, under kind's names. kind brings the system pods and the network; this adds
JobSet, the chips, the shell for test pods, and a record of what the cluster was made from, as its last step:
it stands in the cluster itself, so nothing is left on the machine when the cluster is gone.
"""

from __future__ import annotations

import base64
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import yaml

from e2e.cluster import addons, kueue, node_status
from e2e.cluster.api import Api, ApiError
from e2e.cluster.build import build, cache_root, module_source
from e2e.cluster.certificates import Pair, write_private
from e2e.cluster.command import run
from e2e.cluster.control_plane_host import is_ready
from e2e.cluster.docker_engine import (
    can_pull,
    observe_engine,
    provide_engine,
    stop_engine,
    write_busybox_archive,
)
from e2e.cluster.errors import ClusterError, MachineError
from e2e.cluster.images import write_base_archives, write_jobset_archive, write_kueue_archive
from e2e.cluster.kind_config import CLUSTER, build_kind_config, rename_hosts
from e2e.cluster.kind_image import provide_node_image
from e2e.cluster.kubeconfig import build_kubeconfig, write_kubeconfig
from e2e.cluster.layout import Host, Layout
from e2e.cluster.lock import hold_lock
from e2e.cluster.options import Options, Record, derive_fingerprint, describe_reuse, find_fault
from e2e.cluster.paths import KUBECONFIG
from e2e.cluster.toolchain import Platform
from e2e.cluster.userland import fetch_busybox

__all__ = [
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

_RECORD = "fray-test-cluster"
_CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
_CREATE_SECONDS = 1200.0
"""The first time, the image of the nodes is pulled (about 400 MB) or made."""
_WAITING = "waiting for another command that is changing the cluster"


def up(options: Options, *, progress: Callable[[str], None] = print) -> Path:
    """Make the cluster, or find it healthy, of the same versions and with all hosts; returns the kubeconfig.

    Anything else of its name that is there is removed first, with the reason told. On failure nothing stays.
    Raises ClusterError, ValueError for wrong options.
    """
    started = time.monotonic()
    # kubeadm's servers and CoreDNS ask for most of a CPU of the first node's, so ordinary pods get another.
    options = replace(options, cpu_hosts=options.cpu_hosts + 1)
    layout = rename_hosts(options.layout())
    engine = provide_engine(progress)
    build(["kind", "helm"], progress=progress)
    build(["jobset-controller"], progress=progress, target=engine)
    module_source("jobset")
    with hold_lock(cache_root() / "kind.lock", on_wait=partial(progress, _WAITING)):
        made, wanted = _read_record(), Record(options, derive_fingerprint())
        if made is not None:
            fault = find_fault(made, wanted, observe_health)
            if fault is None:
                progress(describe_reuse(made.options, options))
                return _write_kubeconfig()
            progress(f"removing the cluster that there is: {fault}")
        _remove()
        try:
            _create(layout, engine, progress)
            _write_record(connect(), wanted)
        except BaseException:
            _remove()
            raise
    progress(f"the cluster is up after {time.monotonic() - started:.0f} s; kubeconfig: {KUBECONFIG}")
    return KUBECONFIG


def down(*, progress: Callable[[str], None] = print) -> None:
    """Remove the cluster with all its containers; harmless when there is none.

    What the engine keeps for every kind cluster (the image of the nodes, the network `kind`) stays. An engine
    that `up` has started ends.
    Raises ClusterError.
    """
    _require_engine()
    with hold_lock(cache_root() / "kind.lock", on_wait=partial(progress, _WAITING)):
        _remove()
        stop_engine()
    progress("the cluster is gone")


def connect() -> Api:
    """An administrator's client of the cluster that is up. Raises MachineError when there is none."""
    url, authority, client = _observe_access()
    with tempfile.TemporaryDirectory(prefix="fray-kind-") as folder:
        # Read once, while the client is made.
        certificate = write_private(Path(folder) / "client.crt", client.certificate)
        key = write_private(Path(folder) / "client.key", client.key)
        return Api(url, authority=authority, client=(str(certificate), str(key)))


def current_layout() -> Layout:
    """The hosts of the cluster that is up, under the names of their nodes.

    Raises MachineError when there is none, or only a part of one.
    """
    record = _parse_record(connect())
    if record is None:
        raise MachineError("the cluster was never finished", "run `python -m e2e.cluster up`")
    return rename_hosts(record.options.layout())


def observe_health() -> dict[str, bool]:
    """Which things of the cluster work, by name. Raises MachineError when no cluster is up."""
    api = connect()
    ready = is_ready(api)
    health = {
        "apiserver is ready": ready,
        "JobSet's webhooks answer": ready and addons.is_jobset_serving(api),
    }
    if ready:
        health |= {f"node {h.name} is Ready": node_status.is_ready(h, api) for h in current_layout().hosts}
    return health


def set_fake_nodes(*, tpu_pools: int, cpu_nodes: int, progress: Callable[[str], None] = print) -> None:
    """Never works here: the program that imitates the nodes is part of the provider `local`.

    Raises MachineError unless no fake nodes are asked for.
    """
    if tpu_pools or cpu_nodes:
        raise MachineError("kind has no fake nodes", "set FRAY_CLUSTER_PROVIDER=local and run `up` again")
    progress("0 fake nodes are Ready")


def install_kueue(*, progress: Callable[[str], None] = print) -> None:
    """Install Kueue into the running cluster; returns once it answers. Raises ClusterError."""
    layout, api, engine = current_layout(), connect(), _require_engine()
    if kueue.is_kueue_serving(api):
        return
    manager = build(["kueue"], progress=progress, target=engine)["kueue"]
    helm = build(["helm"], progress=progress)["helm"]
    progress("installing Kueue")
    with tempfile.TemporaryDirectory(prefix="fray-kind-") as name:
        folder = Path(name)
        archive = write_kueue_archive(manager, folder, architecture=engine.goarch)
        import_images([archive], hosts=[host for host in layout.hosts if not host.taints])
        kueue.install_kueue(api, [str(helm)], kubeconfig=KUBECONFIG, home=folder / "helm")
    kueue.await_kueue(api)


def crash_host(host: Host) -> None:
    """Take a host away as a power failure does: every process at once, its pods too. Raises CommandError."""
    run(["docker", "kill", host.name])


def restore_host(host: Host) -> None:
    """Start a host that was crashed again; returns once its node is Ready with its chips.

    Its disk, and with it the imported images, is as it was. Raises ClusterError.
    """
    run(["docker", "start", host.name])
    _await_node(host, connect())


def restart_apiserver() -> None:
    """Never works here: the kubelet of the node alone decides when it starts its own apiserver again.

    Raises MachineError.
    """
    raise MachineError("the apiserver of kind can't be restarted", "set FRAY_CLUSTER_PROVIDER=local")


def import_images(archives: Sequence[Path], *, hosts: Sequence[Host] | None = None) -> None:
    """Import docker-archive files into all hosts of the running cluster, or into those given.

    Pods then name the images as they are tagged in the archives. Raises CommandError.
    """
    paths = [str(path.resolve(strict=True)) for path in archives]
    if not paths or hosts == []:
        return
    chosen = [] if hosts is None else [f"--nodes={','.join(host.name for host in hosts)}"]
    _kind("load", "image-archive", f"--name={CLUSTER}", *chosen, *paths)


def _create(layout: Layout, engine: Platform, progress: Callable[[str], None]) -> None:
    progress(f"making {len(layout.hosts)} hosts: {', '.join(host.name for host in layout.hosts)}")
    with tempfile.TemporaryDirectory(prefix="fray-kind-") as name:
        folder = Path(name)
        # Without a kubeconfig of its own, kind would change the user's.
        words = ("create", "cluster", "--config=-", f"--kubeconfig={folder / 'kubeconfig'}")
        image = None if can_pull() else provide_node_image(progress)
        _kind(*words, stdin=yaml.safe_dump(build_kind_config(layout, image=image), sort_keys=False))
        _write_kubeconfig()
        api = connect()
        progress("importing the images of JobSet and busybox")
        controller = build(["jobset-controller"], target=engine)["jobset-controller"]
        jobset = write_jobset_archive(controller, folder, architecture=engine.goarch)
        if image is None:
            shells = [write_busybox_archive(folder / "busybox.tar")]
        else:
            shells = write_base_archives(fetch_busybox(progress), folder)
        import_images(shells, hosts=layout.hosts)
        import_images([jobset], hosts=[host for host in layout.hosts if not host.taints])
        helm = build(["helm"])["helm"]
        addons.install_jobset([str(helm)], kubeconfig=KUBECONFIG, home=folder / "helm")
    progress("waiting for the nodes")
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(partial(_await_node, api=api), layout.hosts))
    progress("waiting for CoreDNS and JobSet")
    addons.await_coredns(api)
    addons.await_jobset(api)


def _remove() -> None:
    with tempfile.TemporaryDirectory(prefix="fray-kind-") as folder:
        _kind("delete", "cluster", f"--name={CLUSTER}", f"--kubeconfig={folder}/kubeconfig")
    with suppress(OSError):  # not there, or the folder holds something else too
        KUBECONFIG.unlink()
        KUBECONFIG.parent.rmdir()


def _await_node(host: Host, api: Api) -> None:
    def describe() -> str:
        return str(api.get(f"/api/v1/nodes/{host.name}").body.get("status", {}).get("conditions"))

    node_status.await_ready(host, api, details=describe)


def _read_record() -> Record | None:
    """What the cluster that is up was made as; None for one that doesn't answer or was never finished."""
    try:
        return _parse_record(connect())
    except (ClusterError, OSError):
        return None


def _parse_record(api: Api) -> Record | None:
    answer = api.get(f"{_CONFIG_MAPS}/{_RECORD}")
    try:
        return Record.from_json(answer.body["data"]["record"]) if answer.ok else None
    except (KeyError, ValueError):
        return None


def _write_record(api: Api, record: Record) -> None:
    data = {"record": record.to_json()}
    answer = api.post(_CONFIG_MAPS, {"metadata": {"name": _RECORD}, "data": data})
    if not answer.ok:
        raise ApiError("the record of the cluster was refused", answer)


def _write_kubeconfig() -> Path:
    """Give this checkout its kubeconfig, also for a cluster that another checkout made."""
    url, authority, client = _observe_access()
    KUBECONFIG.parent.mkdir(parents=True, exist_ok=True)
    return write_kubeconfig(KUBECONFIG, build_kubeconfig(url=url, authority=authority, client=client))


def _observe_access() -> tuple[str, bytes, Pair]:
    """URL, authority and administrator's certificate of the cluster. Raises MachineError for no cluster."""
    if CLUSTER not in _kind("get", "clusters").split():
        raise MachineError("no kind cluster is up", "run `python -m e2e.cluster up`")
    content = yaml.safe_load(_kind("get", "kubeconfig", f"--name={CLUSTER}"))
    cluster = content["clusters"][0]["cluster"]
    user = content["users"][0]["user"]

    def decode(text: str) -> bytes:
        return base64.b64decode(text, validate=True)

    client = Pair(decode(user["client-certificate-data"]), decode(user["client-key-data"]))
    return cluster["server"], decode(cluster["certificate-authority-data"]), client


def _kind(*words: str, stdin: str | None = None) -> str:
    """Standard output of a kind command. Raises CommandError."""
    # It would look for other engines too, and `docker_engine` knows only this one.
    environment = {**os.environ, "KIND_EXPERIMENTAL_PROVIDER": "docker"}
    command = [str(build(["kind"])["kind"]), *words]
    return run(command, stdin=stdin, environment=environment, timeout=_CREATE_SECONDS)


def _require_engine() -> Platform:
    engine = observe_engine()
    if engine is None:
        raise MachineError(
            "no Docker engine answers that runs Linux", "start it, or set FRAY_CLUSTER_PROVIDER=local"
        )
    return engine

"""The images of a cluster: those that it needs to run at all, and the import of any other.

Nothing is ever pulled: a pod must name an image that was imported, with `imagePullPolicy` IfNotPresent or
Never.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.cluster.archive import Image, write_archive
from e2e.cluster.build import Binaries
from e2e.cluster.command import run
from e2e.cluster.daemons import enter_command
from e2e.cluster.layout import Host
from e2e.cluster.node_config import CONTAINERD_SOCKET
from e2e.cluster.toolchain import host_platform
from e2e.cluster.userland import list_applets
from e2e.cluster.versions import part_named

__all__ = [
    "BUSYBOX_IMAGE",
    "PAUSE_IMAGE",
    "coredns_image",
    "import_archives",
    "jobset_image",
    "kueue_image",
    "write_base_archives",
    "write_jobset_archive",
    "write_kueue_archive",
    "write_system_archives",
]

# `.test` can never be a real registry, and a dot keeps runtimes from putting their default one in front.
_REGISTRY = "fray.test"
PAUSE_IMAGE = f"{_REGISTRY}/pause:1"
BUSYBOX_IMAGE = f"{_REGISTRY}/busybox:1"
"""A shell, nslookup, wget, nc, httpd ...: for test pods that need no Python."""


def coredns_image() -> str:
    """Name of the CoreDNS image."""
    return f"{_REGISTRY}/coredns:{part_named('coredns').version}"


def jobset_image() -> tuple[str, str]:
    """Repository and tag of the JobSet controller's image, as its chart wants them."""
    return f"{_REGISTRY}/jobset", part_named("jobset").version


def kueue_image() -> tuple[str, str]:
    """Repository and tag of Kueue's image, as its chart wants them."""
    return f"{_REGISTRY}/kueue", part_named("kueue").version


def write_base_archives(busybox: Path, folder: Path) -> list[Path]:
    """The archives that every host needs: the sandbox of all pods, and busybox for tests."""
    files = {"/bin/busybox": busybox}
    links = {f"/bin/{applet}": "busybox" for applet in list_applets(busybox)}
    pause = Image(
        name=PAUSE_IMAGE, files=files, links=links, entrypoint=["/bin/busybox", "sleep", "2147483647"]
    )
    shell = Image(name=BUSYBOX_IMAGE, files=files, links=links, entrypoint=["/bin/sh"])
    return [_write(pause, folder), _write(shell, folder)]


def write_system_archives(binaries: Binaries, folder: Path) -> list[Path]:
    """The archives for hosts that take system pods: CoreDNS and the JobSet controller."""
    coredns = Image(name=coredns_image(), files={"/coredns": binaries["coredns"]}, entrypoint=["/coredns"])
    return [_write(coredns, folder), write_jobset_archive(binaries["jobset-controller"], folder)]


def write_jobset_archive(controller: Path, folder: Path, *, architecture: str | None = None) -> Path:
    """The archive of the JobSet controller, built for `architecture` (Go's name; default this machine's)."""
    return _write_manager(jobset_image(), controller, folder, architecture)


def write_kueue_archive(manager: Path, folder: Path, *, architecture: str | None = None) -> Path:
    """The archive of Kueue, built for `architecture` (Go's name; default this machine's)."""
    return _write_manager(kueue_image(), manager, folder, architecture)


def _write_manager(name: tuple[str, str], program: Path, folder: Path, architecture: str | None) -> Path:
    image = Image(
        name=":".join(name),
        files={"/manager": program},  # the charts run it by this path
        entrypoint=["/manager"],
        user="65532:65532",
    )
    return _write(image, folder, architecture=architecture)


def _write(image: Image, folder: Path, *, architecture: str | None = None) -> Path:
    name = image.name.rpartition("/")[2].replace(":", "-")
    return write_archive(image, folder / f"{name}.tar", architecture=architecture or host_platform().goarch)


def import_archives(archives: Iterable[Path], hosts: Iterable[Host]) -> None:
    """Make the images in docker-archive files known to hosts; one of the same name is replaced.

    Raises CommandError, or MachineError when a host does not run.
    """
    paths = [path.resolve(strict=True) for path in archives]

    def import_all(host: Host) -> None:
        # Hosts see the machine's files but not its /run; so the archive goes in by standard input.
        enter = enter_command(host.name)
        for path in paths:
            importing = f'exec "$@" < {shlex.quote(str(path))}'
            client = ["ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io", "images", "import", "-"]
            run(["sh", "-c", importing, "sh", *enter, *client])

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(import_all, hosts))

"""A shell and the usual small tools for test pods: one static busybox.

Taken from its Debian package, unpacked into the cache and not installed. In Debian 12's build `wget -T`
crashes: use `timeout` around it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from e2e.cluster.build import cache_root
from e2e.cluster.command import run
from e2e.cluster.errors import CommandError, MachineError
from e2e.cluster.toolchain import host_platform

__all__ = ["fetch_busybox", "list_applets"]

_PACKAGE = "busybox-static"


def fetch_busybox(progress: Callable[[str], None]) -> Path:
    """The busybox program. Raises MachineError when its package can't be fetched or is not as expected."""
    path = cache_root() / "debian" / str(host_platform()) / "busybox"
    if path.exists():
        return path
    progress(f"fetching the Debian package {_PACKAGE}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=path.parent) as name:
        work = Path(name)
        try:
            download = ["sh", "-c", 'cd "$0" && exec apt-get download -q "$1"', str(work), _PACKAGE]
            run(download, environment={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
            for package in work.glob("*.deb"):
                run(["dpkg-deb", "--extract", str(package), str(work / "tree")])
        except CommandError as error:
            raise MachineError(f"could not fetch {_PACKAGE}", "run `apt-get update`, then again") from error
        found = next((file for file in work.glob("tree/**/bin/busybox") if file.is_file()), None)
        if found is None:
            raise MachineError(f"{_PACKAGE} holds no bin/busybox", "see what the package became")
        found.replace(path)
    return path


def list_applets(busybox: Path) -> list[str]:
    """The names that busybox can be called by."""
    return [name for name in run([str(busybox), "--list"]).split() if name != "busybox"]

"""The Docker engine of this machine: whether one answers, and the images that only it can fetch."""

from __future__ import annotations

import os
from pathlib import Path

from e2e.cluster.command import run
from e2e.cluster.errors import CommandError
from e2e.cluster.images import BUSYBOX_IMAGE
from e2e.cluster.toolchain import Platform
from e2e.cluster.versions import image_named

__all__ = ["observe_engine", "write_busybox_archive"]

_PROBE_SECONDS = 20.0


def observe_engine() -> Platform | None:
    """The platform of the containers of the Docker engine, or None when no engine answers that runs Linux."""
    probe = ["docker", "version", "--format={{.Server.Os}} {{.Server.Arch}}"]
    try:
        words = run(probe, timeout=_PROBE_SECONDS).split()
    except CommandError:
        return None
    if len(words) != 2 or words[0] != "linux":
        return None
    return Platform(*words)


def write_busybox_archive(path: Path) -> Path:
    """Write the shell for test pods to the docker-archive file `path`; the engine keeps no image of it.

    Built, not just pulled: the archive of an image pulled for one platform of many names contents that it
    lacks, and nodes refuse it. Raises CommandError.
    """
    # Attestations would be such contents again.
    environment = {**os.environ, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
    dockerfile = f'FROM {image_named("busybox")}\nENTRYPOINT ["/bin/sh"]\n'
    run(["docker", "build", f"--tag={BUSYBOX_IMAGE}", "-"], stdin=dockerfile, environment=environment)
    try:
        run(["docker", "save", f"--output={path}", BUSYBOX_IMAGE])
    finally:
        run(["docker", "image", "rm", "--force", BUSYBOX_IMAGE])
    return path

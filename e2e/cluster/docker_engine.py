"""The Docker engine of this machine, found or started, and the images that only it can fetch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from e2e.cluster.command import await_condition, run
from e2e.cluster.errors import CommandError, MachineError
from e2e.cluster.images import BUSYBOX_IMAGE
from e2e.cluster.machine import install_packages, uplink_mtu
from e2e.cluster.toolchain import Platform
from e2e.cluster.versions import image_named

__all__ = ["can_pull", "observe_engine", "provide_engine", "stop_engine", "write_busybox_archive"]

_PROBE_SECONDS = 20.0
_START_SECONDS = 60.0
_HOME = Path("/var/lib/fray-docker")
"""Of the engine that was started here: its images stay when it ends."""
_PID = _HOME / "docker.pid"
_SYSCTLS = {
    # Before the engine does it, which would then drop all that others forward.
    "/proc/sys/net/ipv4/ip_forward": "1",
    "/proc/sys/fs/inotify/max_user_instances": "8192",  # shared by the kubelets and kube-proxies of all nodes
}

_RUNTIME = """\
#!/bin/sh
# runc where no process may have CAP_SYS_RESOURCE: containers, privileged ones too, do without it.
drop() {
  [ -f "$1" ] || return 0
  jq "$2" "$1" > "$1.new" && cat "$1.new" > "$1" && rm "$1.new"
}
without='map_values(map(select(. != "CAP_SYS_RESOURCE")))'
previous=
for word in "$@"; do
  case "$previous $word" in
    "--bundle "*) drop "$word/config.json" ".process.capabilities |= $without" ;;
    "--process "*) drop "$word" ".capabilities |= $without" ;;
  esac
  previous=$word
done
exec runc "$@"
"""


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


def provide_engine(progress: Callable[[str], None]) -> Platform:
    """The platform of the engine that answers; on Debian as root, one is installed and started if none does.

    Raises MachineError where that isn't possible, NotReadyError when it doesn't start.
    """
    engine = observe_engine()
    if engine is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise MachineError(
                "no Docker engine answers that runs Linux", "start it, or set FRAY_CLUSTER_PROVIDER=local"
            )
        install_packages({"dockerd": "docker.io", "jq": "jq"}, progress)
        progress("starting a Docker engine")
        _start_engine()
        await_condition("the Docker engine answers", _answers, timeout=_START_SECONDS, details=_read_log)
        engine = observe_engine()
    if engine is None:
        raise MachineError("the Docker engine doesn't run Linux", "set FRAY_CLUSTER_PROVIDER=local")
    return engine


def _start_engine() -> None:
    for setting, value in _SYSCTLS.items():
        Path(setting).write_text(value)
    _HOME.mkdir(parents=True, exist_ok=True)
    runtime = _HOME / "runc-bounded"
    runtime.write_text(_RUNTIME)
    runtime.chmod(0o755)
    settings = {
        "data-root": str(_HOME / "data"),
        "exec-root": "/run/fray-docker",
        "pidfile": str(_PID),
        "mtu": uplink_mtu(),
        "default-runtime": "bounded",
        "runtimes": {"bounded": {"path": str(runtime)}},
    }
    config = _HOME / "daemon.json"
    config.write_text(json.dumps(settings))
    with (_HOME / "log").open("wb") as log:
        # `--fork`: it outlives this process, so it is no child of it either.
        subprocess.run(
            ["setsid", "--fork", "dockerd", "--config-file", str(config)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=True,
        )


def stop_engine() -> None:
    """End the engine that was started here, if one runs; its images stay."""
    try:
        pid = int(_PID.read_text())
    except (FileNotFoundError, ValueError):
        return
    with suppress(ProcessLookupError):
        if b"dockerd" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGTERM)
            await_condition("the Docker engine ends", lambda: not _PID.exists(), timeout=_START_SECONDS)


def _answers() -> bool:
    return observe_engine() is not None


def _read_log() -> str:
    return "\n".join((_HOME / "log").read_text(errors="replace").splitlines()[-10:])


def can_pull() -> bool:
    """Whether the engine reaches the registry of the images that only it can fetch."""
    try:
        run(["docker", "pull", "--quiet", image_named("busybox")])
    except CommandError:
        return False
    return True


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

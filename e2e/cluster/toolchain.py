"""Run the Go tool: found, new enough, and shielded from settings of the environment that would break a build.

Which programs to build is not decided here.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import CompileError, GoToolchainError, ModuleProxyError

__all__ = ["Platform", "build_go_environment", "find_go", "host_platform", "run_go"]

MINIMUM_GO = (1, 21)
"""The first Go that fetches the toolchain a go.mod asks for (go.dev/doc/toolchain)."""

_OUTPUT_LINES = 30
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_PROXY_TROUBLE = re.compile(
    r"dial tcp|no such host|connection re(fused|set)|i/o timeout|handshake timeout|proxyconnect"
    r"|deadline exceeded|GOPROXY=off|40[34] |410 Gone|50[234] |x509:|unexpected EOF|toolchain not available",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Platform:
    """An operating system and architecture in Go's names."""

    goos: str
    goarch: str

    def __str__(self) -> str:
        return f"{self.goos}-{self.goarch}"


def host_platform() -> Platform:
    """The platform that built programs must run on: this machine's.

    Raises GoToolchainError on an architecture that no part was ever built for.
    """
    machine = platform.machine().lower()
    if machine not in _ARCHITECTURES:
        raise GoToolchainError(f"no test cluster for the architecture {machine!r}: x86_64 and arm64 only")
    return Platform(platform.system().lower(), _ARCHITECTURES[machine])


def build_go_environment(environ: Mapping[str, str], target: Platform) -> dict[str, str]:
    """The environment for one Go command.

    Fixed values, not empty ones: for an empty variable Go falls back to the user's `go env -w` file.
    """
    return {
        **environ,
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOARCH": target.goarch,
        "GOFLAGS": "-mod=readonly",
        "GOOS": target.goos,
        "GOTOOLCHAIN": "auto",
        "GOWORK": "off",
    }


def find_go(environ: Mapping[str, str] = os.environ) -> str:
    """Path of a Go tool that is new enough. Raises GoToolchainError."""
    found = shutil.which("go", path=environ.get("PATH"))
    if found is None:
        raise GoToolchainError("there is no `go` on PATH")
    try:
        # GOTOOLCHAIN=local: the version of this very file, without fetching another one.
        said = subprocess.run(
            [found, "version"],
            env={**environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"},
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise GoToolchainError(f"{found} does not run: {error}") from error
    match = re.search(r"\bgo(\d+)\.(\d+)", said)
    if match is not None and (int(match[1]), int(match[2])) < MINIMUM_GO:
        raise GoToolchainError(f"{found} is Go {match[1]}.{match[2]}")
    return found


def run_go(
    arguments: Sequence[str],
    *,
    cwd: Path,
    doing: str,
    target: Platform | None = None,
    overrides: Mapping[str, str] | None = None,
) -> str:
    """Standard output of `go <arguments>` run in the module folder `cwd`.

    `doing` names the step in errors; `overrides` go last into the environment.
    Raises GoToolchainError, ModuleProxyError or CompileError.
    """
    command = [find_go(), *arguments]
    environment = build_go_environment(os.environ, target or host_platform()) | dict(overrides or {})
    try:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise GoToolchainError(f"{command[0]} does not run: {error}") from error
    if done.returncode == 0:
        return done.stdout
    tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_OUTPUT_LINES:])
    if _PROXY_TROUBLE.search(done.stderr):
        raise ModuleProxyError(doing, tail)
    raise CompileError(doing, done.returncode, tail)

"""What a host's container runs: the entrypoint, and before it what its environment asks for.

The order is fixed: the workspace is unpacked, packages are installed, the commands of `setup` run, and the
entrypoint takes their place. A job that asks for none of it runs its command as it is, without a shell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fray.credentials import redacted
from fray.plan.expansion import escape_text
from fray.plan.injection import build_start, is_fray_offered, is_prepared
from fray.plan.manifests import Fact
from fray.wire.frayjob import Environment, FrayJob

__all__ = [
    "CACHE_MOUNT",
    "HEAD_MOUNT",
    "KEYS_MOUNT",
    "PAYLOAD_MOUNT",
    "WORKSPACE_ARCHIVE_MOUNT",
    "WORKSPACE_MOUNT",
    "build_command",
    "explain_preparation",
]

PAYLOAD_MOUNT: Final = "/var/run/fray/payload"
WORKSPACE_ARCHIVE_MOUNT: Final = "/var/run/fray/workspace-archive"
WORKSPACE_MOUNT: Final = "/var/run/fray/workspace"
"""Where the workspace is unpacked, and the entrypoint starts."""
CACHE_MOUNT: Final = "/var/cache/fray"
KEYS_MOUNT: Final = "/var/run/secrets/fray/auth"
"""Where the keys of pools are."""
HEAD_MOUNT: Final = "/var/run/fray/pool-head"
"""Where the volume is that a pool's head alone writes to."""


def build_command(job: FrayJob, *, injected: bool, launcher: Sequence[str] = ()) -> list[str]:
    """Return the container's command; `injected` says whether Fray's runtime is brought into the pod.

    Where it isn't, the user of the command has installed what the job asks for. `launcher` stands before the
    entrypoint, behind what is prepared and set up.
    """
    command = _setup(job.spec.environment, [*launcher, *_entrypoint(job, injected=injected)])
    offered = ["--offer-fray"] if is_fray_offered(job.spec) else []
    if not injected or not (offered or is_prepared(job.spec)):
        return command
    return build_start("prepare", [*offered, *_preparation(job.spec.environment), "--", *command])


def explain_preparation(environment: Environment) -> list[Fact]:
    """Return the facts about what happens before the entrypoint, in its order."""
    facts = []
    if environment.workspace is not None:
        action = f"unpacked into {WORKSPACE_MOUNT}"
        facts.append(Fact("first, workspace", action, "if its sha256 is right; the entrypoint starts there"))
    packages = [redacted(package) for package in environment.pip_packages]
    packages += [f".[{','.join(environment.extras)}]"] if environment.extras else []
    if packages:
        why = "uv installs them into the environment of the image's python3, in each container"
        facts.append(Fact("then, packages", ", ".join(packages), why))
    return facts


def _entrypoint(job: FrayJob, *, injected: bool) -> list[str]:
    entrypoint = job.spec.entrypoint
    if entrypoint.command is not None:
        return list(entrypoint.command)
    assert entrypoint.callable is not None
    expected = ["--sha256", entrypoint.callable.sha256, "--python", entrypoint.callable.python]
    if entrypoint.callable.results_url is not None:
        expected += ["--results", escape_text(entrypoint.callable.results_url)]
    place = escape_text(entrypoint.callable.url or PAYLOAD_MOUNT)
    runner = build_start("call", []) if injected else ["python3", "-m", "fray.runtime.callable_runner"]
    return [*runner, place, *expected]


def _setup(environment: Environment, command: list[str]) -> list[str]:
    if not environment.setup:
        return command
    # The kubelet would take $$ and $(...) of a shell for its own.
    setup = [escape_text(line) for line in environment.setup]
    script = "\n".join(["set -e", *setup, 'exec "$@"'])
    return ["/bin/sh", "-c", script, "setup", *command]


def _preparation(environment: Environment) -> list[str]:
    """Return the options of `fray.runtime.preparation`."""
    options: list[str] = []
    workspace = environment.workspace
    if workspace is not None:
        place = workspace.url or WORKSPACE_ARCHIVE_MOUNT
        options += [f"--workspace={escape_text(place)}", f"--sha256={workspace.sha256}"]
        options.append(f"--into={WORKSPACE_MOUNT}")
    options += [f"--package={escape_text(package)}" for package in environment.pip_packages]
    options += [f"--extra={escape_text(extra)}" for extra in environment.extras]
    if environment.cache_volume is not None:
        options.append(f"--cache={CACHE_MOUNT}")
    return options

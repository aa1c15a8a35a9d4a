"""How Fray's runtime comes into images that lack it: an init container brings it, and a volume holds it.

Only for jobs that need it: those of a callable, those with packages, extras or a workspace, and those with
workers. The installation's own image has Fray, so nothing is brought there: a pod without an init container
starts sooner, since the kubelet looks once a second whether one has ended. What is in the injector's image
stands in `operator/Dockerfile`; what uses the runtime is `pod`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fray.plan.manifests import Fact
from fray.plan.settings import PlanSettings
from fray.plan.workers import has_workers
from fray.vocabulary import CONTAINER, POOL_DEMAND_CONTAINER, POOL_HEAD_CONTAINER
from fray.wire.frayjob import FrayJobSpec

__all__ = [
    "INJECTOR",
    "PACKAGES",
    "RUNTIME_MOUNT",
    "RUNTIME_VOLUME",
    "UV",
    "build_injector",
    "build_module_command",
    "build_start",
    "choose_injector",
    "is_fray_offered",
    "is_prepared",
    "size_injector",
]

RUNTIME_MOUNT: Final = "/var/run/fray/runtime"
START: Final = ["python3", f"{RUNTIME_MOUNT}/fray/runtime/start.py"]
INJECTOR: Final = "fray-runtime"
"""Name of the init container, and of the volume that it fills."""
RUNTIME_VOLUME: Final = {"name": INJECTOR, "mountPath": RUNTIME_MOUNT, "readOnly": True}
"""How containers mount it."""
PACKAGES: Final = "/opt/fray-injected/packages"
UV: Final = "/opt/fray-injected/uv"
"""Folders in the injector's image: Fray and cloudpickle, and a uv that runs on any libc."""
HIDING: Final = frozenset({"image", "env", "envFrom"})
"""What a podTemplate may say of a container so that another `python3` is found there."""
SHARED: Final = ("cpu", "memory", "ephemeral-storage")


def is_prepared(spec: FrayJobSpec) -> bool:
    """Return whether packages or code are installed before the entrypoint."""
    environment = spec.environment
    return bool(environment.pip_packages or environment.extras or environment.workspace)


def choose_injector(spec: FrayJobSpec, settings: PlanSettings) -> str | None:
    """Return the image that the runtime is brought from into a job's pods; None where it isn't brought.

    It isn't where nothing of Fray's runs, nor where `python3` is that of the installation's own image. The uv
    that installs packages is brought there too.
    """
    prepared = is_prepared(spec)
    if prepared or ((spec.entrypoint.callable or has_workers(spec)) and not _has_fray(spec, settings)):
        return settings.injector_image
    return None


def _has_fray(spec: FrayJobSpec, settings: PlanSettings) -> bool:
    """Return whether a job's containers run the installation's image, and nothing hides the Fray in it."""
    environment = spec.environment
    if environment.image not in (None, settings.image) or environment.env_from:
        return False
    own = {CONTAINER, INJECTOR, POOL_HEAD_CONTAINER, POOL_DEMAND_CONTAINER}
    changed = [each for each in _list_overlaid(spec.pod_template) if each.get("name") in own]
    variables = [variable.name for variable in environment.env]
    return "PATH" not in variables and not any(
        each["name"] == INJECTOR or HIDING & each.keys() for each in changed
    )


def _list_overlaid(overlay: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield the containers of a podTemplate that are any; others the API server refuses."""
    spec = (overlay or {}).get("spec")
    for field in ("containers", "initContainers"):
        listed = spec.get(field) if isinstance(spec, Mapping) else None
        yield from (each for each in listed or () if isinstance(each, Mapping))


def is_fray_offered(spec: FrayJobSpec) -> bool:
    """Return whether what a job's container starts is to find the runtime, in images without a Fray.

    That is a program of the user's, and all that Ray starts.
    """
    command = spec.entrypoint.command
    programs = command is not None and command[: len(START)] != START
    return has_workers(spec) and (programs or spec.workers.engine == "ray")


def build_start(task: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a task of the runtime: see `fray.runtime.start`."""
    return [*START, task, *arguments]


def build_module_command(*module: str, injected: bool) -> list[str]:
    """Return the command that runs a module of Fray's in a pod, with the runtime that was brought there.

    Behind the module's name stand its arguments.
    """
    return build_start("run", module) if injected else ["python3", "-m", *module]


def build_injector(spec: FrayJobSpec, image: str) -> tuple[dict[str, Any], dict[str, Any], Fact]:
    """Return the init container, the volume that it fills, and why it is there.

    `image` may run as any user: the pod's security context decides.
    """
    brought = [PACKAGES, UV] if is_prepared(spec) else [PACKAGES]
    container = {
        "name": INJECTOR,
        "image": image,
        "command": ["cp", "-R", *(f"{folder}/." for folder in brought), RUNTIME_MOUNT],
        "volumeMounts": [{"name": INJECTOR, "mountPath": RUNTIME_MOUNT}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    what = "Fray's runtime and uv" if is_prepared(spec) else "Fray's runtime"
    fact = Fact(f"init container {INJECTOR}", image, f"brings {what} into any image that has Python")
    return container, {"name": INJECTOR, "emptyDir": {}}, fact


def size_injector(injector: dict[str, Any], main: dict[str, Any]) -> None:
    """Give the init container the cpu and memory of the job's own, unless it has resources.

    A pod asks for the larger of both, so it asks for no more than without; and quotas, queues and classes of
    service that look at every container see the same in both.
    """
    if "resources" in injector:
        return
    known = main.get("resources") or {}
    asked = {
        kind: {name: amounts[name] for name in SHARED if name in amounts}
        for kind in ("requests", "limits")
        if isinstance(amounts := known.get(kind), dict)
    }
    injector["resources"] = {kind: amounts for kind, amounts in asked.items() if amounts}

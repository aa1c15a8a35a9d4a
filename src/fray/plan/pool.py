"""What pods of a job with workers have besides: the pool's keys, its head, a probe of workers.

The head is a native sidecar of hosts: the pods of a gang share one template, and that of rank 0 runs it, the
others wait. It runs in the runtime's own image, since it never unpickles what users send, and ends after the
program, as sidecars do; with it ends the attempt for all workers. Ray's head is in rank 0's main container
instead, and the sidecar only keeps the number of workers right. Their variables are `environment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fray.plan.command import HEAD_MOUNT, KEYS_MOUNT, WORKSPACE_MOUNT, build_command
from fray.plan.environment import PROTECTED_PREFIX, EnvEntry, build_bounds
from fray.plan.gang import Gang
from fray.plan.injection import RUNTIME_VOLUME, build_module_command, choose_injector
from fray.plan.manifests import Fact
from fray.plan.settings import PlanSettings
from fray.plan.workers import has_keys, has_workers
from fray.vocabulary import (
    AUTH_SECRET,
    ENV_POOL_METRICS,
    ENV_POOL_STATE,
    POOL_DEMAND_CONTAINER,
    POOL_HEAD_CONTAINER,
    POOL_METRICS_PORT,
    POOL_METRICS_PORT_NAME,
    POOL_READY_PORT,
    Role,
)
from fray.wire.frayjob import Entrypoint, FrayJob, FrayJobSpec

__all__ = ["PoolParts", "build_launcher", "build_pool_parts", "build_ready_probe"]


@dataclass(frozen=True)
class _Sidecar:
    """What a sidecar of hosts runs, and why it is there."""

    module: Sequence[str]
    why: str = "the head of the pool, in rank 0's pod; it starts before main, and ends after it"
    name: str = POOL_HEAD_CONTAINER


SIDECARS: Final = {
    "fray": _Sidecar(["fray.runtime.pool.head_pod"]),
    "dask": _Sidecar(["fray.job.dask_pods", "scheduler"]),
    "ray": _Sidecar(
        ["fray.job.ray_pods", "demand"],
        "keeps the number of workers right, in rank 0's pod; if it ends it is started again, and the pool "
        "goes on meanwhile",
        POOL_DEMAND_CONTAINER,
    ),
}
"""By the engine."""
LAUNCHERS: Final = {"ray": ["fray.job.ray_pods", "host"]}
"""What stands before the program of each host, by the engine: it starts what a rank has of it."""
KEYS: Final = "fray-auth"
"""Name of the volume with the keys."""
KEYS_READABLE: Final = 0o444
"""As other Secrets: the kubelet makes them root's, and an image's user may be any other."""
HEAD_REQUESTS: Final = {"cpu": "100m", "memory": "128Mi"}
"""So that a program that takes all of its node's processors doesn't starve the head."""
READY_PATH: Final = "/ready"
READY_SECONDS: Final = 1


@dataclass(frozen=True)
class PoolParts:
    """What a pool adds to a pod: volumes, mounts of the main container, sidecars; and what to explain of it.

    `probe` says whether the pod is ready, where it is a worker's.
    """

    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    sidecars: tuple[dict[str, Any], ...] = ()
    probe: dict[str, Any] | None = None
    facts: tuple[Fact, ...] = ()


def build_pool_parts(
    job: FrayJob,
    gang: Gang,
    environment: Sequence[EnvEntry],
    *,
    main: Mapping[str, Any],
    role: Role,
    settings: PlanSettings,
) -> PoolParts:
    """Return what the pool of a job adds to pods of this role: of one without workers the keys at most.

    `main` is the main container: the head of an engine that isn't Fray's own runs in its image.
    """
    if not has_keys(job.spec):
        return PoolParts()
    pooled = has_workers(job.spec)
    keys, mount, keys_fact = _build_keys(awaited=pooled)
    if not pooled:
        return PoolParts((keys,), (mount,), facts=(keys_fact,))
    if role is Role.WORKER:
        why = f"a worker is ready while it has joined its pool: GET {READY_PATH}"
        facts = (keys_fact, Fact("readinessProbe", f"port {POOL_READY_PORT}", why))
        return PoolParts((keys,), (mount,), probe=build_ready_probe(), facts=facts)
    engine = job.spec.workers.engine
    begun = f"each rank starts its part of {engine} first, rank 0 the head"
    before = [Fact("before the program", engine, begun)] if engine in LAUNCHERS else []
    if before and not build_bounds(job, settings):
        return PoolParts((keys,), (mount,), facts=(keys_fact, *before))
    sidecar, volume, fact = _build_sidecar(job, gang, environment, settings=settings)
    if engine == "fray":
        # Nobody but the head can put another socket in the place of its own.
        socket = {"name": volume["name"], "mountPath": HEAD_MOUNT, "readOnly": True}
        why = "in rank 0's pod the head listens there for the program, which needs no TLS then"
        shown = (keys_fact, fact, Fact(f"mount {HEAD_MOUNT}", "the head's volume, to read", why))
        return PoolParts((keys, volume), (mount, socket), sidecars=(sidecar,), facts=shown)
    others = _use_image(sidecar, job, main, injected=choose_injector(job.spec, settings) is not None)
    fact = replace(fact, value=sidecar["image"])
    return PoolParts((keys, volume, *others), (mount,), sidecars=(sidecar,), facts=(keys_fact, *before, fact))


def build_launcher(spec: FrayJobSpec, *, role: Role, injected: bool) -> list[str]:
    """Return what stands before the program of a container of this role; empty for most engines."""
    launcher = LAUNCHERS.get(spec.workers.engine) if role is Role.HOST and has_workers(spec) else None
    return [] if launcher is None else build_module_command(*launcher, injected=injected)


def _use_image(
    sidecar: dict[str, Any], job: FrayJob, main: Mapping[str, Any], *, injected: bool
) -> list[dict[str, Any]]:
    """Let a sidecar run where its engine is installed: in the job's image, with its packages and variables.

    Returns the volumes that it needs besides: each container unpacks the workspace into one of its own.
    """
    entrypoint = Entrypoint(command=sidecar["command"])
    program = job.model_copy(update={"spec": job.spec.model_copy(update={"entrypoint": entrypoint})})
    workspace = f"{sidecar['name']}-workspace"
    own = {entry["name"] for entry in sidecar["env"]}
    sidecar["image"] = main["image"]
    sidecar["command"] = build_command(program, injected=injected)
    sidecar["env"] = [*(entry for entry in main["env"] if entry["name"] not in own), *sidecar["env"]]
    if "envFrom" in main:
        sidecar["envFrom"] = main["envFrom"]
    known = {mount["name"] for mount in sidecar["volumeMounts"]}
    mounts = [mount for mount in main["volumeMounts"] if mount["name"] not in known]
    unpacked = [mount for mount in mounts if mount["mountPath"] == WORKSPACE_MOUNT]
    sidecar["volumeMounts"] += [
        {**mount, "name": workspace} if mount in unpacked else mount for mount in mounts
    ]
    # Packages are installed into the image.
    sidecar["securityContext"].pop("readOnlyRootFilesystem")
    # Only Fray's own head shows what the pool does there.
    sidecar.pop("ports")
    return [{"name": workspace, "emptyDir": {}}] if unpacked else []


def _build_keys(*, awaited: bool) -> tuple[dict[str, Any], dict[str, Any], Fact]:
    """Return the volume of the namespace's keys, its mount, and why it is there.

    With `awaited` pods wait for the Secret. The kubelet writes keys that come later, or were rotated, into
    the mount of a pod that runs.
    """
    secret: dict[str, Any] = {"secretName": AUTH_SECRET, "defaultMode": KEYS_READABLE}
    if awaited:
        why = "processes of a pool know each other by its keys; no variable holds them"
    else:
        secret["optional"] = True
        why = "a callable may call actors, which know it by these keys; no variable holds them"
    mount = {"name": KEYS, "mountPath": KEYS_MOUNT, "readOnly": True}
    return {"name": KEYS, "secret": secret}, mount, Fact(f"mount {KEYS_MOUNT}", f"Secret {AUTH_SECRET}", why)


def _build_sidecar(
    job: FrayJob, gang: Gang, environment: Sequence[EnvEntry], *, settings: PlanSettings
) -> tuple[dict[str, Any], dict[str, Any], Fact]:
    """Return the sidecar of an engine, a volume of its own, and why it is there.

    The volume is for the mark by which a head knows that it was restarted, and for the socket of Fray's own.
    """
    spec = job.spec
    sidecar = SIDECARS[spec.workers.engine]
    injected = choose_injector(spec, settings) is not None
    mounts = [{"name": sidecar.name, "mountPath": HEAD_MOUNT}, _build_keys(awaited=True)[1]]
    # Where no runtime is brought into pods, the job's own image has it.
    image = settings.image if injected else spec.environment.image or settings.image
    if injected:
        mounts.append(RUNTIME_VOLUME)
    own = [entry for entry in environment if entry.name.startswith(PROTECTED_PREFIX)]
    state = EnvEntry(ENV_POOL_STATE, "a volume of its own", HEAD_MOUNT)
    metrics = EnvEntry(ENV_POOL_METRICS, "where it shows the pool", str(POOL_METRICS_PORT))
    container: dict[str, Any] = {
        "name": sidecar.name,
        "image": image,
        "command": build_module_command(*sidecar.module, injected=injected),
        "restartPolicy": "Always",
        "env": [entry.to_manifest() for entry in (*own, state, metrics, *build_bounds(job, settings))],
        "ports": [{"name": POOL_METRICS_PORT_NAME, "containerPort": POOL_METRICS_PORT}],
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if gang.tpu is None and gang.gpu is None:
        # Hosts with accelerators may ask for all that their machine has.
        container["resources"] = {"requests": dict(HEAD_REQUESTS)}
    volume = {"name": sidecar.name, "emptyDir": {}}
    return container, volume, Fact(f"sidecar {sidecar.name}", image, sidecar.why)


def build_ready_probe(port: int = POOL_READY_PORT) -> dict[str, Any]:
    """Return how a pod tells that it takes work, a worker's by default; it isn't ready before it answers."""
    return {
        "httpGet": {"path": READY_PATH, "port": port},
        "periodSeconds": READY_SECONDS,
        "failureThreshold": 1,
    }

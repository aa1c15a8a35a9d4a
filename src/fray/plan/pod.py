"""The pod template of an attempt: container, resources, mounts, and the user's overlay over them.

One template serves all hosts of the gang. Where the pods run is `placement`, their variables are
`environment`, what those of a pool have besides `pool`; how many there are is `jobset`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fray.accelerators import GPU_RESOURCE, TPU_RESOURCE
from fray.plan.command import (
    CACHE_MOUNT,
    PAYLOAD_MOUNT,
    WORKSPACE_ARCHIVE_MOUNT,
    WORKSPACE_MOUNT,
    build_command,
    explain_preparation,
)
from fray.plan.environment import PROTECTED_PREFIX, EnvEntry
from fray.plan.gang import Gang
from fray.plan.injection import (
    INJECTOR,
    RUNTIME_VOLUME,
    build_injector,
    choose_injector,
    size_injector,
)
from fray.plan.manifests import Fact
from fray.plan.overlay import check_overlay, merge_overlay
from fray.plan.placement import NodePlacement
from fray.plan.pool import build_launcher, build_pool_parts
from fray.plan.settings import PlanSettings
from fray.plan.sidecars import use_native_sidecars
from fray.vocabulary import ANNOTATION_SAFE_TO_EVICT, CONTAINER, Role
from fray.wire.frayjob import FrayJob
from fray.wire.quantities import parse_quantity

__all__ = ["PAYLOAD_VOLUME", "PodTemplate", "build_pod_template"]

PAYLOAD_VOLUME = "payload"
NO_ANNOTATIONS: Mapping[str, str] = {}
READABLE = 0o444
"""Mode of mounted Secrets: the kubelet makes them root's, and an image's user may be any other."""
SPOT_GRACE_SECONDS = 15
"""GKE gives pods 15 s when a spot VM is taken (docs: spot VMs, graceful node shutdown)."""
SAFE_TO_EVICT_DOCS = "https://docs.cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler"


@dataclass(frozen=True)
class PodTemplate:
    """A pod template as a manifest, with facts and notices for the user."""

    manifest: dict[str, Any]
    facts: tuple[Fact, ...]
    notices: tuple[str, ...]


def build_pod_template(  # noqa: PLR0913 - all that a template rests on
    job: FrayJob,
    gang: Gang,
    *,
    environment: Sequence[EnvEntry],
    placement: NodePlacement,
    labels: dict[str, str],
    annotations: Mapping[str, str] = NO_ANNOTATIONS,
    settings: PlanSettings,
    role: Role = Role.HOST,
) -> PodTemplate:
    """Return the template of every pod of the gang, or of its workers, the user's overlay merged in.

    Raises `InvalidJobError` for an overlay that can't be merged.
    """
    resources, whole, notices = _resources(job, gang)
    env, ignored = _env(job, environment)
    notices += ignored
    volumes, mounts, facts = _volumes(job)
    facts += whole
    injectors: list[dict[str, Any]] = []
    if (image := choose_injector(job.spec, settings)) is not None:
        injector, volume, fact = build_injector(job.spec, image)
        injectors.append(injector)
        volumes.append(volume)
        mounts.append(RUNTIME_VOLUME)
        facts.append(fact)
        facts += explain_preparation(job.spec.environment)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": job.spec.environment.image or settings.image,
        "command": build_command(
            job,
            injected=bool(injectors),
            launcher=build_launcher(job.spec, role=role, injected=bool(injectors)),
        ),
        "env": env,
        "resources": resources,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if job.spec.environment.env_from:
        container["envFrom"] = [source.to_manifest() for source in job.spec.environment.env_from]
    pool = build_pool_parts(job, gang, environment, main=container, role=role, settings=settings)
    volumes += pool.volumes
    mounts += pool.mounts
    facts += pool.facts
    starters = [*injectors, *pool.sidecars]
    if pool.probe is not None:
        container["readinessProbe"] = pool.probe
    if job.spec.ports:
        container["ports"] = [
            {"name": port.name, "containerPort": port.port, "protocol": "TCP"} for port in job.spec.ports
        ]
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": job.spec.service_account_name or settings.service_account,
        **placement.to_pod_spec(),
        **({"initContainers": starters} if starters else {}),
        "containers": [container],
        "volumes": volumes,
    }
    if job.spec.placement.spot == "Required":
        spec["terminationGracePeriodSeconds"] = SPOT_GRACE_SECONDS
        facts.append(
            Fact("terminationGracePeriodSeconds", str(SPOT_GRACE_SECONDS), "spot nodes give no more")
        )
    metadata = {"labels": labels, "annotations": {ANNOTATION_SAFE_TO_EVICT: "false", **annotations}}
    manifest: dict[str, Any] = {"metadata": metadata, "spec": spec}
    if job.spec.pod_template:
        check_overlay(job.metadata.name, job.spec.pod_template)
        spot = job.spec.placement.spot == "Required"
        manifest, undone = _with_overlay(manifest, job.spec.pod_template, spot=spot)
        notices += undone
        facts += use_native_sidecars(manifest["spec"])
    kept = (manifest["metadata"].get("annotations") or {}).get(ANNOTATION_SAFE_TO_EVICT)
    if kept == "false":
        why = "scale-down must not move a gang's pod; podTemplate may say otherwise"
        facts.append(Fact(f"annotation {ANNOTATION_SAFE_TO_EVICT}", kept, why, SAFE_TO_EVICT_DOCS))
    _size_injector(manifest["spec"])
    return PodTemplate(manifest, tuple(facts), tuple(notices))


def _size_injector(spec: dict[str, Any]) -> None:
    mains = [container for container in spec["containers"] if container["name"] == CONTAINER]
    for container in spec.get("initContainers") or []:
        if container["name"] == INJECTOR:
            size_injector(container, mains[0])


def _with_overlay(
    base: dict[str, Any], overlay: dict[str, Any], *, spot: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the template under the overlay, and notices about what was put back afterwards.

    What a gang can't do without is put back: labels, restart policy, its hosts' identity.
    """
    notices = []
    merged = merge_overlay(base, {key: overlay[key] for key in ("metadata", "spec") if key in overlay})
    merged["metadata"]["labels"] = {**merged["metadata"].get("labels", {}), **base["metadata"]["labels"]}
    spec = merged["spec"]
    spec["restartPolicy"] = "Never"  # podFailurePolicy needs it
    _keep_node_affinity(base["spec"], spec)
    if spot:
        grace = spec.get("terminationGracePeriodSeconds", SPOT_GRACE_SECONDS)
        spec["terminationGracePeriodSeconds"] = min(grace, SPOT_GRACE_SECONDS)
        if grace > SPOT_GRACE_SECONDS:
            notices.append(
                f"spot nodes give no more than {SPOT_GRACE_SECONDS} s: "
                f"terminationGracePeriodSeconds is that instead of {grace}"
            )
    ours = base["spec"]["containers"][0]
    protected = [entry for entry in ours["env"] if entry["name"].startswith(PROTECTED_PREFIX)]
    for container in spec["containers"]:
        if container["name"] == CONTAINER:
            asked = {entry["name"]: entry for entry in container.get("env", [])}
            container["env"] = merge_overlay(container, {"env": protected})["env"]
            lost = [entry["name"] for entry in protected if asked.get(entry["name"], entry) != entry]
            notices += [_protected_notice("podTemplate", name) for name in lost]
    return merged, notices


def _keep_node_affinity(ours: dict[str, Any], merged: dict[str, Any]) -> None:
    """Require our node affinity beside the overlay's: its terms are alternatives, so each gets ours.

    An overlay of another form is passed on as it is, for the API server to refuse.
    """
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    wanted, found = _walk(ours, path), _walk(merged, path)
    terms = found.get("nodeSelectorTerms")
    if not wanted or not isinstance(terms, list):
        return
    expressions = wanted["nodeSelectorTerms"][0]["matchExpressions"]
    found["nodeSelectorTerms"] = [_with_expressions(term, expressions) for term in terms]


def _walk(mapping: Any, path: tuple[str, ...]) -> dict[str, Any]:
    for key in path:
        mapping = mapping.get(key) if isinstance(mapping, dict) else None
    return mapping if isinstance(mapping, dict) else {}


def _with_expressions(term: Any, expressions: list[dict[str, Any]]) -> Any:
    own = term.get("matchExpressions", []) if isinstance(term, dict) else None
    if not isinstance(own, list):
        return term
    return {**term, "matchExpressions": [*own, *(wanted for wanted in expressions if wanted not in own)]}


def _protected_notice(where: str, name: str) -> str:
    return f"{where} sets {name}, which Fray keeps for itself: it is ignored"


def _env(job: FrayJob, environment: Sequence[EnvEntry]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return Fray's variables, then the user's, and notices about those that are protected.

    The user's value wins but for protected names.
    """
    entries = {entry.name: entry.to_manifest() for entry in environment}
    notices = []
    for variable in job.spec.environment.env:
        if variable.name in entries and variable.name.startswith(PROTECTED_PREFIX):
            notices.append(
                f"environment.env sets {variable.name}, which Fray keeps for itself: it is ignored"
            )
            continue
        # Taken out first: a user's variable may refer to any of Fray's, so it stands behind them all.
        entries.pop(variable.name, None)
        entries[variable.name] = {"name": variable.name, **variable.to_manifest()}
    return list(entries.values()), notices


def _resources(job: FrayJob, gang: Gang) -> tuple[dict[str, Any], list[Fact], list[str]]:
    """Return a container's resources, which of them are all that a host has, and what was cut to that."""
    asked = job.spec.resources
    requests: dict[str, str] = {}
    facts: list[Fact] = []
    notices: list[str] = []
    machine, shares = _shares(gang)
    wanted = (("cpu", asked.cpu), ("memory", asked.memory), ("ephemeral-storage", asked.disk))
    for name, quantity in wanted:
        if quantity is None:
            continue
        requests[name] = str(quantity)
        share = shares.get(name)
        if share is None:
            if machine and not shares and name != "ephemeral-storage":
                unknown = f"asked for, or Fray's default: no page tells how large {machine} hosts are"
                facts.append(Fact(f"request {name}", requests[name], unknown))
            continue
        if gang.tpu is not None and parse_quantity(quantity) > parse_quantity(share):
            notices.append(
                f"{name} {quantity} is more than a {machine} host leaves to pods: {share} is requested"
            )
            requests[name] = share
        if parse_quantity(requests[name]) == parse_quantity(share):
            facts.append(Fact(f"request {name}", requests[name], f"all that {machine} leaves to pods"))
    resources: dict[str, Any] = {}
    if gang.tpu is not None:
        chips = {TPU_RESOURCE: str(gang.tpu.chips_per_host)}
    elif gang.gpu is not None:
        chips = {GPU_RESOURCE: str(gang.gpu.count)}
    else:
        chips = {}
    if requests or chips:
        resources["requests"] = {**requests, **chips}
    if chips:
        resources["limits"] = chips
    return resources, facts, notices


def _shares(gang: Gang) -> tuple[str, dict[str, str]]:
    """Return the machine type of a gang's hosts, and what one leaves to pods; empty where it isn't known."""
    if gang.tpu is not None:
        machine, size = gang.tpu.machine_type, gang.tpu.size
    elif gang.gpu is not None:
        machine, size = (*gang.gpu.machine_types, "")[0], gang.gpu.size
    else:
        return "", {}
    if size is None:
        return machine, {}
    return machine, {"cpu": str(size.for_pods.cpu), "memory": f"{size.for_pods.memory_gb}G"}


def _volumes(job: FrayJob) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[Fact]]:
    """Return volumes and mounts: shared memory, and the Secrets and claims that the job names."""
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    facts = [Fact("mount /dev/shm", "memory", "NCCL and data loaders need more than a container's 64 MiB")]
    payload = job.spec.entrypoint.callable
    if payload is not None and payload.secret_name is not None:
        names = [payload.secret_name, *payload.more_secrets]
        volumes.append({"name": PAYLOAD_VOLUME, **_secret_source(names)})
        mounts.append({"name": PAYLOAD_VOLUME, "mountPath": PAYLOAD_MOUNT, "readOnly": True})
        facts.append(Fact(f"mount {PAYLOAD_MOUNT}", _name_secrets(names), "holds the pickled callable"))
    workspace = job.spec.environment.workspace
    if workspace is not None:
        volumes.append({"name": "workspace", "emptyDir": {}})
        mounts.append({"name": "workspace", "mountPath": WORKSPACE_MOUNT})
        facts.append(Fact(f"mount {WORKSPACE_MOUNT}", "a new volume", "the user's code is unpacked there"))
    if workspace is not None and workspace.secret_name is not None:
        names = [workspace.secret_name, *workspace.more_secrets]
        volumes.append({"name": "workspace-archive", **_secret_source(names)})
        mounts.append({"name": "workspace-archive", "mountPath": WORKSPACE_ARCHIVE_MOUNT, "readOnly": True})
        facts.append(Fact(f"mount {WORKSPACE_ARCHIVE_MOUNT}", _name_secrets(names), "holds the user's code"))
    if job.spec.environment.cache_volume is not None:
        claim = job.spec.environment.cache_volume
        volumes.append({"name": "cache", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": "cache", "mountPath": CACHE_MOUNT})
        facts.append(
            Fact(f"mount {CACHE_MOUNT}", f"claim {claim}", "keeps downloaded packages between attempts")
        )
    return volumes, mounts, facts


def _name_secrets(names: Sequence[str]) -> str:
    return f"Secret {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _secret_source(names: Sequence[str]) -> dict[str, Any]:
    """Return the part of a volume that says which Secrets it holds; the pod waits until all are there."""
    if len(names) == 1:
        return {"secret": {"secretName": names[0], "defaultMode": READABLE}}
    sources = [{"secret": {"name": name}} for name in names]
    return {"projected": {"sources": sources, "defaultMode": READABLE}}

"""What of a FrayJob this machine can't do: refused where the job would be another one, named elsewhere.

Pure. A job is refused only for what its process would miss; what merely says where it runs on a cluster
(image, placement, requests) is named once, in one short block, and the job runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fray.cluster.local.pods import pod_template_of
from fray.errors import OpenFilesError, UnsupportedFeatureError
from fray.plan.gang import GangKind
from fray.plan.jobset import AttemptPlan
from fray.plan.kueue import derive_queue
from fray.plan.workers import has_workers
from fray.vocabulary import CONTAINER
from fray.wire.frayjob import FrayJob, Placement

__all__ = ["build_notices", "check_open_files", "check_supported"]

OPEN_FILES = 64
"""Of the program itself: streams, locks, the rendezvous ports, and room to spare."""
OPEN_FILES_PER_HOST = 3
"""The channel to its supervisor, the pipe of its output and its log file."""

HONOURED_POD_FIELDS = frozenset({"containers", "terminationGracePeriodSeconds"})
HONOURED_CONTAINER_FIELDS = frozenset(
    {"name", "command", "args", "env", "envFrom", "workingDir", "ports", "image", "resources"}
)


def check_supported(
    job: FrayJob, plan: AttemptPlan, *, has_payload: bool = False, has_packages: bool = False
) -> None:
    """Refuse a job whose processes would miss what only a cluster provides.

    Args:
        job: The job.
        plan: What it means.
        has_payload: Its pickled callable lies in its folder.
        has_packages: Its packages are, or will be, where its processes look for them.

    Raises:
        UnsupportedFeatureError: names the field, the reason and what to write instead.
    """
    spec, environment = job.spec, job.spec.environment
    if spec.entrypoint.callable is not None and not has_payload:
        raise UnsupportedFeatureError(
            "spec.entrypoint.callable",
            "the pickled callable lies in a Secret",
            "Use spec.entrypoint.command, such as [python, -m, your_module].",
        )
    for field, value in (("pipPackages", environment.pip_packages), ("extras", environment.extras)):
        if value and not has_packages:
            raise UnsupportedFeatureError(
                f"spec.environment.{field}",
                "processes run in the Python that is installed here",
                "Install the packages into it yourself and remove the field.",
            )
    if environment.workspace is not None:
        raise UnsupportedFeatureError(
            "spec.environment.workspace",
            "the archive lies in a Secret or in object storage",
            "Name a directory (`workspace: .`), or remove the field: processes start in the file's folder.",
        )
    if has_workers(spec):
        raise UnsupportedFeatureError(
            "spec.workers", "the in-job pool needs pods", "Remove the field, or run the job on a cluster."
        )
    if spec.suspend:
        raise UnsupportedFeatureError(
            "spec.suspend", "nothing here would resume the job", "Set it to false to run the job."
        )
    for source in _main_container(plan).get("envFrom") or []:
        _check_env_from(source)


def check_open_files(job: FrayJob, plan: AttemptPlan, *, allowed: int) -> None:
    """Refuse a gang that needs more open files than this process may have.

    Raises:
        OpenFilesError: says how many it needs.
    """
    hosts = plan.gang.hosts
    needed = OPEN_FILES + hosts * (OPEN_FILES_PER_HOST + len(job.spec.ports))
    if needed > allowed:
        raise OpenFilesError(hosts, needed, allowed)


def _check_env_from(source: object) -> None:
    references = source if isinstance(source, Mapping) else {}
    for kind in ("secretRef", "configMapRef"):
        reference = references.get(kind)
        if isinstance(reference, Mapping) and reference.get("optional") is not True:
            raise UnsupportedFeatureError(
                "spec.environment.envFrom",
                "there are no Secrets and ConfigMaps",
                "Mark it as optional and set the variables in the shell, or in spec.environment.env.",
                f"({kind} {reference.get('name')})",
            )


def build_notices(job: FrayJob, plan: AttemptPlan) -> tuple[str, ...]:
    """Return what the job asks for and doesn't get on this machine, one sentence each."""
    return tuple(_notices(job, plan))


def _notices(job: FrayJob, plan: AttemptPlan) -> Iterator[str]:
    spec = job.spec
    if spec.environment.image is not None:
        yield f"image {spec.environment.image}: processes use what is installed here"
    if plan.gang.kind is not GangKind.CPU:
        yield f"{plan.gang.describe()}: processes find the devices that are here"
    requests = [name for name in ("cpu", "memory", "disk") if getattr(spec.resources, name) is not None]
    if requests:
        yield f"requests for {', '.join(requests)}: nothing is reserved or limited"
    if spec.placement != Placement():
        fields = sorted(spec.placement.to_manifest())
        yield f"placement ({', '.join(fields)}): all processes run here"
    if spec.environment.cache_volume is not None:
        yield f"cacheVolume {spec.environment.cache_volume}: nothing is mounted"
    if spec.service_account_name is not None:
        yield f"serviceAccountName {spec.service_account_name}: processes run as you"
    if (queue := derive_queue(job).name) is not None:
        yield f"queue {queue}: the job starts at once"
    references = _optional_references(plan)
    if references:
        yield f"optional references ({', '.join(references)}): left out"
    overlaid = _overlaid_fields(job)
    if overlaid:
        yield f"podTemplate ({', '.join(overlaid)}): means nothing to a process"


def _main_container(plan: AttemptPlan) -> Mapping[str, Any]:
    containers = pod_template_of(plan)["spec"].get("containers") or []
    for container in containers:
        if isinstance(container, Mapping) and container.get("name") == CONTAINER:
            return container
    return {}


def _optional_references(plan: AttemptPlan) -> list[str]:
    container = _main_container(plan)
    names = [entry["name"] for entry in container.get("env") or [] if _object_reference(entry)]
    for source in container.get("envFrom") or []:
        names += [str(ref.get("name")) for ref in source.values() if isinstance(ref, Mapping)]
    return names


def _object_reference(entry: Mapping[str, Any]) -> bool:
    source = entry.get("valueFrom") or {}
    return "secretKeyRef" in source or "configMapKeyRef" in source


def _overlaid_fields(job: FrayJob) -> list[str]:
    """Return the fields of the overlay that no process can honour."""
    overlay = job.spec.pod_template or {}
    spec = overlay.get("spec")
    if not isinstance(spec, Mapping):
        return []
    fields = [field for field in spec if field not in HONOURED_POD_FIELDS]
    containers = spec.get("containers")
    for container in containers if isinstance(containers, list) else []:
        if not isinstance(container, Mapping):
            continue
        if container.get("name") != CONTAINER:
            fields.append(f"container {container.get('name')}")
        else:
            fields += [field for field in container if field not in HONOURED_CONTAINER_FIELDS]
    return sorted(fields)

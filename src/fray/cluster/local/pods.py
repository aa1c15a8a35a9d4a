"""Which processes a JobSet stands for: what JobSet, the Job controller and the kubelet would make of it.

Pure: one attempt's plan in, one `LocalPod` per host out. Labels and downward fields are those that the
controllers would set, so that `fieldRef` works as in a pod. Starting the processes is `host`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fray.cluster.local.container import MAIN, MainContainer, read_main_container
from fray.errors import UnsupportedFeatureError
from fray.plan.environment import port_variable
from fray.plan.expansion import UnresolvedReferenceError, expand_arguments, expand_environment
from fray.plan.jobset import AttemptPlan
from fray.plan.names import LOOPBACK
from fray.plan.observation import HostObservation
from fray.vocabulary import (
    ENV_COMPLETION_INDEX,
    LABEL_COMPLETION_INDEX,
    LABEL_JOB,
    LABEL_JOB_INDEX,
    LABEL_JOBSET_NAME,
    LABEL_REPLICATED_JOB,
)

__all__ = ["LocalMachine", "LocalPod", "build_local_pods", "pod_template_of"]

OBJECT_REFERENCES = ("secretKeyRef", "configMapKeyRef")


@dataclass(frozen=True)
class LocalMachine:
    """What pods learn about where they run. `run_id` is unique to one `fray run`."""

    node_name: str
    run_id: uuid.UUID


@dataclass(frozen=True)
class LocalPod:
    """One host as a process: what to run, and the variables that the pod adds to the inherited ones.

    `working_dir` is the container's own, None where it names none. `grace_seconds` is the time between
    SIGTERM and SIGKILL.
    """

    slice_index: int
    host: int
    rank: int
    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    working_dir: str | None
    grace_seconds: float

    @property
    def label(self) -> str:
        """Its place in the gang, as it stands before each line of its output: `slice/host`."""
        return f"{self.slice_index}/{self.host}"

    def observe(self, **facts: Any) -> HostObservation:
        """Return what is known of the host, with its place in the gang."""
        return HostObservation(
            slice_index=self.slice_index, host=self.host, rank=self.rank, name=self.name, **facts
        )


def pod_template_of(plan: AttemptPlan) -> Mapping[str, Any]:
    """Return the pod template within an attempt's JobSet."""
    (replicated_job,) = plan.jobset["spec"]["replicatedJobs"]
    template: Mapping[str, Any] = replicated_job["template"]["spec"]["template"]
    return template


def build_local_pods(
    plan: AttemptPlan, machine: LocalMachine, *, ports: Sequence[Mapping[str, int]] = ()
) -> tuple[LocalPod, ...]:
    """Return the hosts of an attempt in order of their rank.

    `ports` holds, for each rank, the numbers of the named ports where they differ from the declared ones.

    Raises:
        InvalidJobError: the podTemplate overlay holds something of a wrong type.
        UnsupportedFeatureError: a variable refers to what only a cluster has.
    """
    (replicated_job,) = plan.jobset["spec"]["replicatedJobs"]
    job_name = str(plan.jobset["metadata"]["labels"][LABEL_JOB])
    container = read_main_container(pod_template_of(plan), job_name=job_name)
    pods = []
    for slice_index in range(replicated_job["replicas"]):
        for host in range(replicated_job["template"]["spec"]["completions"]):
            rank = plan.gang.rank(slice_index=slice_index, host=host)
            name = f"{plan.name}-{replicated_job['name']}-{slice_index}-{host}"
            fields = _downward_fields(plan, container, machine, name=name, place=(slice_index, host))
            env = _environment(container, fields, host=host, ports=ports[rank] if ports else {})
            pods.append(
                LocalPod(
                    slice_index=slice_index,
                    host=host,
                    rank=rank,
                    name=name,
                    command=tuple(expand_arguments(container.command, env)),
                    env=env,
                    working_dir=container.working_dir,
                    grace_seconds=container.grace_seconds,
                )
            )
    return tuple(pods)


def _downward_fields(
    plan: AttemptPlan, container: MainContainer, machine: LocalMachine, *, name: str, place: tuple[int, int]
) -> dict[str, str]:
    """Return the values of every downward-API path, and of label and annotation keys."""
    template = pod_template_of(plan)["spec"]
    (replicated_job,) = plan.jobset["spec"]["replicatedJobs"]
    return {
        **container.annotations,
        **container.labels,
        LABEL_JOBSET_NAME: plan.name,
        LABEL_REPLICATED_JOB: str(replicated_job["name"]),
        LABEL_JOB_INDEX: str(place[0]),
        LABEL_COMPLETION_INDEX: str(place[1]),
        "metadata.name": name,
        "metadata.namespace": str(plan.jobset["metadata"].get("namespace") or "default"),
        "metadata.uid": str(uuid.uuid5(machine.run_id, name)),
        "spec.nodeName": machine.node_name,
        "spec.serviceAccountName": str(template.get("serviceAccountName") or "default"),
        "status.hostIP": LOOPBACK,
        "status.hostIPs": LOOPBACK,
        "status.podIP": LOOPBACK,
        "status.podIPs": LOOPBACK,
    }


def _environment(
    container: MainContainer, fields: Mapping[str, str], *, host: int, ports: Mapping[str, int]
) -> dict[str, str]:
    numbers = {port_variable(name): str(number) for name, number in ports.items()}
    entries: list[Mapping[str, Any]] = []
    for entry in container.env:
        if entry["name"] in numbers:
            entries.append({"name": entry["name"], "value": numbers[entry["name"]]})
        elif not _is_optional_reference(entry):
            entries.append(entry)
    if not any(entry["name"] == ENV_COMPLETION_INDEX for entry in entries):
        # The Job controller appends it to the container's variables unless it is there already.
        entries.append({"name": ENV_COMPLETION_INDEX, "value": str(host)})
    try:
        return expand_environment(entries, fields)
    except UnresolvedReferenceError as error:
        name, source = error.args
        raise UnsupportedFeatureError(
            f"environment variable {name}",
            f"it comes from {source}, which only a cluster has",
            f"Give {name} a plain value, or mark a Secret or ConfigMap as optional; see {MAIN}.env "
            "and spec.environment.env.",
        ) from error


def _is_optional_reference(entry: Mapping[str, Any]) -> bool:
    source = entry.get("valueFrom") or {}
    references = [source[kind] for kind in OBJECT_REFERENCES if isinstance(source.get(kind), Mapping)]
    return any(reference.get("optional") is True for reference in references)

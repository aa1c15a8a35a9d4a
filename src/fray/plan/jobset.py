"""An attempt of a FrayJob as a JobSet manifest: the one place where shape, pods and policies meet.

The JobSet is created once and never applied again: JobSet and Kueue edit it, and a newer operator must
not touch a running job. Retries are not JobSet's: each attempt is a JobSet of its own, but for one that
Kueue evicted and resumes (`kueue`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fray.plan.environment import MULTISLICE, EnvEntry, build_environment
from fray.plan.gang import Gang, GangKind, derive_gang
from fray.plan.gang_placement import (
    NOTHING_READ,
    ClusterTopology,
    GangPlacement,
    build_gang_placement,
    is_dynamic,
)
from fray.plan.kueue import derive_queue
from fray.plan.manifests import Fact, build_labels, build_owner_references
from fray.plan.names import Addresses, build_cluster_addresses, build_jobset_name
from fray.plan.observation import KILL_CODES
from fray.plan.placement import NodeDemand, build_placement, derive_demand
from fray.plan.pod import build_pod_template
from fray.plan.settings import PlanSettings
from fray.vocabulary import (
    CONTAINER,
    ENV_FRAY_RANK,
    ENV_HOST,
    ENV_HOSTS_PER_SLICE,
    ENV_SLICE,
    JOBSET_API_VERSION,
    LABEL_KUEUE_PRIORITY,
    LABEL_KUEUE_QUEUE,
    REPLICATED_JOB,
    Role,
)
from fray.wire.frayjob import FrayJob
from fray.wire.status import AvoidedNode

__all__ = ["AttemptPlan", "build_attempt", "build_jobset"]

NOBODY_ASKS = "placement.flexStart is Queued, but only Kueue asks for such nodes: name a queue of it"
FAIL_DISRUPTED = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
FAIL_KILLED = {
    "action": "FailJob",
    "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": list(KILL_CODES)},
}
"""Rules that keep the evidence in the Job's condition when the pod itself is gone: disrupted, or killed.

A Job fails with its first pod anyway. A pod that was killed and is gone was deleted. Other exit codes have no
rule: the one Job condition there is would then tell of a peer that crashed, and not of the disrupted pod.
Jobs in a queue have no rule for these either: pods that Kueue's suspension ends are killed too, and the Job
controller fails a suspended Job by its rules (`getFailJobMessage` of Kubernetes 1.34), for good.
"""

JOBSET_DOCS = "https://jobset.sigs.k8s.io/docs/concepts/"
POD_FAILURE_DOCS = "https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy"


@dataclass(frozen=True)
class AttemptPlan:
    """What one attempt of a FrayJob becomes.

    `demand` is what nodes it needs, `jobset` the manifest; `facts` say why each part is so, `notices` what
    was asked for and isn't done as asked.
    """

    gang: Gang
    demand: NodeDemand
    jobset: dict[str, Any]
    facts: tuple[Fact, ...]
    notices: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the JobSet."""
        return str(self.jobset["metadata"]["name"])


def build_attempt(
    job: FrayJob,
    *,
    attempt: int,
    settings: PlanSettings,
    addresses: Addresses | None = None,
    topology: ClusterTopology = NOTHING_READ,
) -> AttemptPlan:
    """Return what attempt number `attempt` (from 1) of a job becomes.

    Its pods keep off the nodes that `job.status` says to avoid. `addresses` is given by backends whose hosts
    aren't pods. `topology` is what the cluster has that keeps gangs together.

    Raises `UnknownAcceleratorError` or `AcceleratorShapeError` for hardware that doesn't exist, and
    `InvalidJobError` for a podTemplate that can't be merged.
    """
    gang = derive_gang(job.spec)
    name = build_jobset_name(job.metadata.name, attempt=attempt, gang=gang)
    addresses = addresses or build_cluster_addresses(name)
    labels = build_labels(job, attempt=attempt, role=Role.HOST)
    environment = build_environment(
        job, gang, addresses, attempt=attempt, metadata_server=settings.metadata_server
    )
    dynamic = is_dynamic(gang, topology)
    avoided = [] if dynamic else _find_avoided(job)  # unhealthy parts are left out of slices that are formed
    placement = build_placement(job.spec.placement, gang, avoided=avoided, dynamic=dynamic)
    together = build_gang_placement(gang, topology, queue=derive_queue(job).name, selector=placement.selector)
    pod = build_pod_template(
        job,
        gang,
        environment=environment,
        placement=placement,
        labels=labels,
        annotations=together.pod_annotations,
        settings=settings,
    )
    metadata, facts = _metadata(job, together, name, labels)
    jobset = build_jobset(metadata, gang, pod.manifest, labels=labels, queued=_is_queued(job))
    demand = replace(derive_demand(job), dynamic=dynamic)
    facts = [
        *_shape_facts(job, gang),
        Fact("nodes", demand.describe(), "spec.replicas, spec.resources, spec.placement and spec.queue"),
        *_slices_facts(job, gang),
        *facts,
        *together.facts,
        *placement.facts,
        *pod.facts,
        *_environment_facts(environment, pod.manifest),
    ]
    unasked = [NOBODY_ASKS] if job.spec.placement.flex_start == "Queued" and not _is_queued(job) else []
    notices = (*together.notices, *placement.notices, *pod.notices, *unasked)
    return AttemptPlan(gang, demand, jobset, tuple(facts), notices)


def build_jobset(
    metadata: Mapping[str, Any],
    gang: Gang,
    template: Mapping[str, Any],
    *,
    labels: Mapping[str, str],
    queued: bool = False,
) -> dict[str, Any]:
    """Return the JobSet of a gang whose pods have this template; its Jobs get the `labels`.

    No part of it is shared with what was given. `queued` says that Kueue admits it.
    """
    made: dict[str, Any] = _unshared(
        {
            "apiVersion": JOBSET_API_VERSION,
            "kind": "JobSet",
            "metadata": metadata,
            "spec": {
                # Defaults of JobSet's webhook are written out: the manifest means the same without it.
                "network": {
                    "enableDNSHostnames": True,
                    "publishNotReadyAddresses": True,
                    "subdomain": metadata["name"],
                },
                "successPolicy": {"operator": "All", "targetReplicatedJobs": []},
                "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
                "failurePolicy": {"maxRestarts": 0},
                "suspend": False,
                "replicatedJobs": [
                    {
                        "name": REPLICATED_JOB,
                        "replicas": gang.slices,
                        "template": {
                            "metadata": {"labels": labels},
                            "spec": _job_spec(gang, template, queued=queued),
                        },
                    }
                ],
            },
        }
    )
    return made


def _find_avoided(job: FrayJob) -> list[AvoidedNode]:
    """Return the nodes to keep off; none where podTemplate names the node, whose kubelet would refuse."""
    spec = (job.spec.pod_template or {}).get("spec")
    pinned = isinstance(spec, Mapping) and spec.get("nodeName") is not None
    return [] if pinned else job.status.avoided_nodes


def _environment_facts(environment: Sequence[EnvEntry], template: dict[str, Any]) -> list[Fact]:
    """Return the facts of Fray's variables; one that the user has replaced is the user's to explain."""
    containers = template["spec"]["containers"]
    (written,) = (container["env"] for container in containers if container["name"] == CONTAINER)
    return [entry.to_fact() for entry in environment if entry.to_manifest() in written]


def _unshared(value: Any) -> Any:
    """Return a copy without an object that occurs twice or belongs to the job: callers may change it."""
    if isinstance(value, dict):
        return {key: _unshared(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unshared(item) for item in value]
    return value


def _is_queued(job: FrayJob) -> bool:
    return derive_queue(job).name is not None


def _job_spec(gang: Gang, template: Mapping[str, Any], *, queued: bool) -> dict[str, Any]:
    return {
        "completionMode": "Indexed",
        "parallelism": gang.hosts_per_slice,
        "completions": gang.hosts_per_slice,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [FAIL_DISRUPTED] if queued else [FAIL_DISRUPTED, FAIL_KILLED]},
        "template": template,
    }


def _metadata(
    job: FrayJob, together: GangPlacement, name: str, labels: dict[str, str]
) -> tuple[dict[str, Any], list[Fact]]:
    facts: list[Fact] = []
    metadata: dict[str, Any] = {"name": name, "labels": dict(labels)}
    if job.metadata.namespace is not None:
        metadata["namespace"] = job.metadata.namespace
    queue = derive_queue(job)
    if queue.name is not None:
        metadata["labels"][LABEL_KUEUE_QUEUE] = queue.name
        because = f"Kueue admits the JobSet; {queue.source} says so"
        facts.append(Fact(f"label {LABEL_KUEUE_QUEUE}", queue.name, because))
    if queue.priority_class is not None:
        metadata["labels"][LABEL_KUEUE_PRIORITY] = queue.priority_class
    if together.jobset_annotations:
        metadata["annotations"] = dict(together.jobset_annotations)
    return {**metadata, **build_owner_references(job)}, facts


def _slices_facts(job: FrayJob, gang: Gang) -> list[Fact]:
    """Return whether several slices work together, and how a host finds its rank among them."""
    if gang.slices == 1:
        return []
    assert job.spec.resources.tpu is not None
    asked = job.spec.resources.tpu.multislice
    facts = []
    if asked is not None:
        facts.append(Fact("multislice", asked, "resources.tpu.multislice says so", MULTISLICE))
    elif gang.multislice:
        why = "the slices have several hosts each; resources.tpu.multislice: Disabled leaves them apart"
        facts.append(Fact("multislice", "Enabled", why, MULTISLICE))
    else:
        why = (
            "GKE documents multislice for slices of several hosts, and these have one each; "
            "resources.tpu.multislice: Enabled sets MEGASCALE_* for them all the same"
        )
        facts.append(Fact("multislice", "Disabled", why, MULTISLICE))
    if gang.multi_host_slices:
        formula = f"{ENV_SLICE} x {ENV_HOSTS_PER_SLICE} + {ENV_HOST}"
        facts.append(
            Fact("rank", formula, f"no label has it for several slices, so {ENV_FRAY_RANK} is unset")
        )
    return facts


def _shape_facts(job: FrayJob, gang: Gang) -> list[Fact]:
    codes = "" if _is_queued(job) else ", exit codes 137 and 143"
    if gang.kind is GangKind.TPU:
        jobs = "one child Job per slice: thousands of pods in one Job stall the Job controller"
    else:
        jobs = "one Job for the whole gang: its completion index is the rank"
    return [
        Fact("gang", gang.describe(), "spec.replicas and spec.resources"),
        Fact("replicatedJobs[0].replicas", str(gang.slices), jobs, JOBSET_DOCS),
        Fact(
            "parallelism, completions",
            str(gang.hosts_per_slice),
            "hosts of a slice; Indexed, so each has a rank",
        ),
        Fact("backoffLimit, maxRestarts", "0", "one lost host ends the attempt; Fray starts the next one"),
        Fact(
            "podFailurePolicy",
            f"FailJob on DisruptionTarget{codes}",
            "the Job keeps the evidence of a preemption or deletion after its pod is gone",
            POD_FAILURE_DOCS,
        ),
    ]

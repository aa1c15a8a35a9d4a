"""What an examination of a cluster finds, and how single observations are judged: pure.

Each result that isn't in order says what to do next. What can't be seen by the account that asks is neither
right nor wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from fray.accelerators.node_labels import (
    GPU_RESOURCE,
    LABEL_ACCELERATOR_COUNT,
    LABEL_GPU_ACCELERATOR,
    LABEL_TPU_ACCELERATOR,
    LABEL_TPU_TOPOLOGY,
    TPU_RESOURCE,
)
from fray.cluster.answers import CheckResult, Mark
from fray.errors import AccessDeniedError
from fray.kube.api import Manifest
from fray.plan.texts import format_count
from fray.plan.timestamps import CLOCK_SKEW, parse_time

__all__ = [
    "NEEDED",
    "Right",
    "find_default_image",
    "find_image_tags",
    "find_served_namespaces",
    "judge_clock",
    "judge_leases",
    "judge_nodes",
    "judge_rights",
    "judge_versions",
]


@dataclass(frozen=True)
class Right:
    """A verb on a resource, as in a role; `group` is empty for the core API, `resource` may be `pods/log`."""

    verb: str
    group: str
    resource: str

    @property
    def of(self) -> str:
        """The resource as a role's reader knows it: `frayjobs.fray.dev`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


NEEDED: Final = (
    *(
        Right(verb, "fray.dev", "frayjobs")
        for verb in ("get", "list", "watch", "create", "update", "patch", "delete")
    ),
    Right("create", "", "secrets"),
    Right("get", "", "configmaps"),
    Right("list", "", "pods"),
    Right("watch", "", "pods"),
    Right("get", "", "pods/log"),
)
"""What this version's client and command line do in a namespace."""

LABEL_VERSION: Final = "app.kubernetes.io/version"

LEASE_SLACK: Final = timedelta(seconds=30)
"""How far the clock of the operator's node may be behind the API server's, with the time of a renewal."""


def judge_clock(ours: datetime, servers: datetime) -> CheckResult:
    """Judge this machine's clock by the API server's."""
    ahead = ours - servers
    if abs(ahead) <= CLOCK_SKEW:
        # The server tells whole seconds.
        return CheckResult(
            "clock", Mark.OK, f"within {max(abs(ahead).total_seconds(), 1):.0f} s of the server's"
        )
    way = "ahead of" if ahead > timedelta() else "behind"
    difference = f"{abs(ahead).total_seconds():.0f} s {way} the API server's"
    return CheckResult(
        "clock", Mark.WRONG, difference, "Set this machine's clock: `timedatectl set-ntp true`."
    )


def judge_leases(leases: Sequence[Manifest], *, now: datetime) -> CheckResult:
    """Judge whether an operator leads, by the Leases of operators; `now` is the API server's time."""
    subject = "operator"
    pods = "kubectl get pods -A -l app.kubernetes.io/name=fray-operator"
    install = f"Look at `{pods}`, or install Fray's chart."
    if not leases:
        return CheckResult(subject, Mark.WRONG, "no operator has ever held its Lease", install)
    holding = [lease for lease in leases if (lease.get("spec") or {}).get("holderIdentity")]
    if not holding:
        return CheckResult(subject, Mark.WRONG, "no operator runs: the last one has ended", install)
    lease = max(holding, key=_renewed)
    spec, namespace = lease["spec"], lease["metadata"]["namespace"]
    # The identity is the pod's name with a word of the process.
    pod = spec["holderIdentity"].rpartition("_")[0] or spec["holderIdentity"]
    who = f"{pod} in namespace {namespace}"
    age, duration = now - _renewed(lease), timedelta(seconds=spec.get("leaseDurationSeconds") or 15)
    if age > duration + LEASE_SLACK:
        silence = f"silent for {age.total_seconds():.0f} s: {who}"
        step = f"Look at `kubectl logs -n {namespace} {pod}`."
        return CheckResult(subject, Mark.WRONG, silence, step)
    return CheckResult(
        subject, Mark.OK, f"{who} leads, and renewed its lease {max(age.total_seconds(), 0):.0f} s ago"
    )


def find_served_namespaces(deployments: Iterable[Manifest]) -> tuple[str, ...] | None:
    """Return the namespaces that operators serve; empty where one serves all, None where nothing tells."""
    found: list[str] = []
    for deployment in deployments:
        served = _variables(deployment).get("FRAY_NAMESPACES", "")
        if not served:
            return ()
        found += [each.strip() for each in served.split(",") if each.strip()]
    return tuple(found) or None


def find_default_image(deployments: Iterable[Manifest]) -> tuple[str | None, str | None]:
    """Return image and service account of jobs that name none, as the operator's Deployment sets them."""
    for deployment in deployments:
        variables = _variables(deployment)
        return variables.get("FRAY_RUNTIME_IMAGE") or None, variables.get("FRAY_SERVICE_ACCOUNT") or None
    return None, None


def find_image_tags(deployments: Iterable[Manifest]) -> tuple[str, ...]:
    """Return the tags of the first container's image of each Deployment, such as `v0.12.0`; none twice."""
    images = [each["spec"]["template"]["spec"]["containers"][0].get("image", "") for each in deployments]
    names = [image.partition("@")[0].rpartition("/")[2] for image in images]
    return tuple(dict.fromkeys(name.partition(":")[2] for name in names if ":" in name))


def judge_versions(deployments: Iterable[Manifest], *, ours: str) -> list[CheckResult]:
    """Compare this Fray's version with that of each operator that can be seen, as the chart labels it."""
    labels = [each["metadata"].get("labels") or {} for each in deployments]
    theirs = dict.fromkeys(each[LABEL_VERSION] for each in labels if LABEL_VERSION in each)
    if not theirs:
        return []
    subject, seen = "versions of Fray", f"{ours} here, {', '.join(theirs)} of the operator"
    if set(theirs) == {ours}:
        return [CheckResult(subject, Mark.OK, seen)]
    step = "Install the same version in both places: upgrade Fray here, or the chart."
    return [CheckResult(subject, Mark.WRONG, seen, step)]


def judge_rights(
    answers: Mapping[Right, bool], *, account: str, namespace: str, server: str
) -> list[CheckResult]:
    """Judge what an account may do: a result for each resource."""
    results = []
    for resource in dict.fromkeys(right.of for right in answers):
        subject = f"may use {resource}"
        verbs = {right.verb: allowed for right, allowed in answers.items() if right.of == resource}
        missing = [verb for verb, allowed in verbs.items() if not allowed]
        if not missing:
            results.append(CheckResult(subject, Mark.OK, ", ".join(verbs)))
            continue
        denied = AccessDeniedError(account, ", ".join(missing), resource, namespace, server)
        seen = f"{account} may not {', '.join(missing)} in namespace {namespace}"
        results.append(CheckResult(subject, Mark.WRONG, seen, denied.next_step))
    return results


def judge_nodes(nodes: Iterable[Manifest]) -> CheckResult:
    """Tell which accelerators the nodes have that are there now. None is no fault: pools may be empty."""
    kinds = Counter(kind for node in nodes if (kind := _accelerator(node)) is not None)
    if not kinds:
        seen = "no node has TPUs or GPUs now; node pools that scale from zero show only when they are used"
        return CheckResult("accelerators", Mark.OK, seen)
    shown = [f"{kind}: {format_count(count, 'node')}" for kind, count in sorted(kinds.items())]
    return CheckResult("accelerators", Mark.OK, "; ".join(shown))


def _accelerator(node: Manifest) -> str | None:
    labels = node["metadata"].get("labels") or {}
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    if (tpu := labels.get(LABEL_TPU_ACCELERATOR)) is not None:
        chips = allocatable.get(TPU_RESOURCE) or labels.get(LABEL_ACCELERATOR_COUNT) or "?"
        return f"{tpu} {labels.get(LABEL_TPU_TOPOLOGY, '?')} ({chips} chips)"
    count = allocatable.get(GPU_RESOURCE, "0")
    gpu = labels.get(LABEL_GPU_ACCELERATOR)
    if gpu is None and count == "0":
        return None
    return f"{gpu or 'GPUs'} ({count} GPUs)"


def _renewed(lease: Manifest) -> datetime:
    spec = lease["spec"]
    return parse_time(spec.get("renewTime") or spec.get("acquireTime") or "1970-01-01T00:00:00Z")


def _variables(deployment: Manifest) -> dict[str, str]:
    containers: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    return {
        each["name"]: each.get("value") or ""
        for container in containers
        for each in container.get("env") or []
    }

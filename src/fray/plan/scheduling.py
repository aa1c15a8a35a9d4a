"""Why an attempt's pods don't run yet, in one sentence that an engineer can act on.

The scheduler's own message counts nodes; this names the node pool that is missing and those there are.
Without nodes to look at (a single-namespace installation may not read them) the scheduler's words have
to do. Nothing here decides anything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from fray.accelerators import (
    GPU_RESOURCE,
    LABEL_GPU_ACCELERATOR,
    LABEL_NODE_POOL,
    LABEL_TPU_ACCELERATOR,
    LABEL_TPU_TOPOLOGY,
    TPU_RESOURCE,
)
from fray.plan.manifests import Manifest, find_condition, list_containers
from fray.plan.node_faults import build_avoidance, describe_avoided
from fray.plan.observation import Waiting
from fray.plan.placement import NodeDemand
from fray.plan.sidecars import describe_failing_sidecar
from fray.plan.texts import flatten, format_count
from fray.plan.timestamps import parse_time
from fray.vocabulary import CONTAINER, Reason
from fray.wire.quantities import parse_quantity
from fray.wire.status import AvoidedNode

__all__ = ["NodeSummary", "build_node_summary", "derive_refusal", "derive_waiting"]

IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError"})
PULL_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff"})
"""The kubelet says them in turns about one image: while it tries to pull it, and while it waits to."""
BACK_OFF_PREFIX = re.compile(r'^Back-off pulling image "[^"]*"(: ErrImagePull)?(: )?')
POD_NAME = re.compile(r'\bpods? "[^"]*"', re.IGNORECASE)
"""The name of a pod that could not be created: each try has another one."""
LEADER_WAIT = "follower pod node selector not set"
"""JobSet refuses a slice's other pods until the first has a node; they are tried again by themselves."""
NO_ROOM = re.compile(r"\bInsufficient \S|\bToo many pods\b")
"""In the scheduler's message when nodes that would do are full or too small:
https://github.com/kubernetes/kubernetes/blob/master/pkg/scheduler/framework/plugins/noderesources/fit.go
"""
ABOUT_THE_POD = re.compile(r"nodes are available: (?!\d)")
"""Begins what the scheduler says of a pod that it looked at no node for: its claim is missing, or unbound."""
PREEMPTION = " preemption: "
"""Begins the part of that message which says whom else's pods don't make room."""
CORDON = ("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint that stands for `kubectl cordon`; a pod that tolerates it may be placed all the same."""
SIZES = ("cpu", "memory", "ephemeral-storage", GPU_RESOURCE, TPU_RESOURCE)
"""What Fray asks for of a node."""
NOT_READY, CORDONED, AVOIDED = "not ready", "cordoned", "avoided"
OUT_OF_SERVICE = (NOT_READY, CORDONED, AVOIDED)
NOT_SELECTED = "didn't match Pod's node affinity/selector"
"""In the scheduler's message when nodes are left out by what pods require of their labels."""
MESSAGE_LENGTH = 400
MOST_POOLS = 6


@dataclass(frozen=True)
class NodeSummary:
    """What matters of a node for placing pods."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...]
    """(key, value, effect) of taints that keep pods off."""
    ready: bool
    cordoned: bool = False
    avoided: bool = False
    """Whether the pods were made to keep off it."""
    unready_since: datetime | None = None
    """Since when it isn't ready, where that is known."""
    silent: bool = False
    """Whether it isn't ready because its kubelet has stopped reporting."""
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """What pods may have of it altogether, of what Fray asks for; empty where that isn't known."""


def build_node_summary(node: Manifest) -> NodeSummary:
    """Return the summary of a node's manifest."""
    spec = node.get("spec", {})
    taints = tuple(
        (taint["key"], taint.get("value", ""), taint["effect"])
        for taint in spec.get("taints", [])
        if taint["effect"] in ("NoSchedule", "NoExecute")
    )
    condition = find_condition(node, "Ready")
    ready, since = condition.get("status") == "True", condition.get("lastTransitionTime")
    metadata, allocatable = node["metadata"], (node.get("status") or {}).get("allocatable") or {}
    return NodeSummary(
        metadata["name"],
        metadata.get("labels", {}),
        taints,
        ready,
        cordoned=bool(spec.get("unschedulable")),
        unready_since=parse_time(since) if since and not ready else None,
        silent=condition.get("status") == "Unknown",
        allocatable={key: allocatable[key] for key in SIZES if key in allocatable},
    )


def derive_refusal(reason: str, message: str) -> Waiting:
    """Return why an object could not be created, from the API server's reason and message."""
    if "exceeded quota" in message:
        return Waiting(Reason.QUOTA_EXCEEDED, f"a quota of the namespace is used up: {_cut(message)}")
    return Waiting(Reason.ADMISSION_REFUSED, f"the cluster refused to create it ({reason}): {_cut(message)}")


def derive_waiting(
    pods: Sequence[Manifest],
    *,
    create_failures: Iterable[str] = (),
    nodes: Sequence[NodeSummary] | None = None,
    avoided: Sequence[AvoidedNode] = (),
    demand: NodeDemand | None = None,
) -> Waiting | None:
    """Return why pods of an attempt wait; None when nothing is wrong so far.

    `create_failures` are messages of the Job controller about pods it could not create; `nodes` is None
    where nodes can't be read; `avoided` are those that the pods were made to keep off; `demand` is what the
    attempt needs, to be named where no node has it.
    """
    for pod in pods:
        found = _find_container_waiting(pod)
        if found is not None:
            return found
    if (failing := describe_failing_sidecar(pods)) is not None:
        return Waiting(Reason.SIDECAR_FAILING, failing)
    for pod in pods:
        message = _unschedulable(pod)
        if message is not None:
            return _explain_with_avoided(pod, message, nodes, avoided, demand)
    for pod in pods:
        gates = [str(gate["name"]) for gate in pod.get("spec", {}).get("schedulingGates") or []]
        if gates:
            text = f"the scheduler may not place the pods until their gates are removed: {', '.join(gates)}"
            return Waiting(Reason.SCHEDULING_GATED, _cut(text))
    for message in create_failures:
        if LEADER_WAIT not in message:
            return derive_refusal("pods", POD_NAME.sub("a pod", message))
    return None


def _find_container_waiting(pod: Manifest) -> Waiting | None:
    for container in list_containers(pod):
        waiting = container.get("state", {}).get("waiting", {})
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in IMAGE_REASONS:
            return _explain_image(container.get("image"), reason, message)
        if reason in CONFIG_REASONS:
            text = f"container {container['name']!r} can't be set up ({reason}): {_cut(message)}"
            return Waiting(Reason.CONTAINER_CONFIG_INVALID, text)
    return None


def _explain_image(image: str | None, reason: str, message: str) -> Waiting:
    """Return what is wrong with an image; the same while the kubelet tries and waits in turns.

    One of Kubernetes 1.31 drops the cause while it waits.
    """
    problem = f"image {image!r} can't be pulled"
    if reason not in PULL_REASONS:
        return Waiting(Reason.IMAGE_PULL_FAILED, f"{problem} ({reason}): {_cut(message)}")
    why = _cut(BACK_OFF_PREFIX.sub("", message))
    return Waiting(Reason.IMAGE_PULL_FAILED, f"{problem}: {why}" if why else problem, vague=not why)


def _unschedulable(pod: Manifest) -> str | None:
    """Return what the scheduler says of a pod that it can't place; one with gates it hasn't tried to."""
    if pod.get("spec", {}).get("schedulingGates"):
        return None
    condition = find_condition(pod, "PodScheduled", status="False")
    return str(condition.get("message") or condition.get("reason") or "") if condition else None


def _explain_with_avoided(
    pod: Manifest,
    message: str,
    nodes: Sequence[NodeSummary] | None,
    avoided: Sequence[AvoidedNode],
    demand: NodeDemand | None,
) -> Waiting:
    """Return why no node takes a pod; nodes that it was made to keep off are named if they would do else."""
    if ABOUT_THE_POD.search(message):
        return Waiting(Reason.PODS_UNPLACEABLE, f"the pods can't be placed: {_cut(message)}")
    keeps_off = [
        {"key": key, "operator": "NotIn", "values": values} for key, values, _ in build_avoidance(avoided)
    ]
    if nodes is None:
        barred = NOT_SELECTED in message and bool(avoided)
        waiting = _explain_unschedulable(pod, message, None, demand)
    else:
        seen = [
            replace(node, avoided=not all(_expression_holds(e, node.labels) for e in keeps_off))
            for node in nodes
        ]
        at_large = _without(pod, keeps_off)
        barred = any(node.avoided and _matches(at_large, node) for node in seen)
        waiting = _explain_unschedulable(at_large, message, seen, demand)
    if not barred:
        return waiting
    whom = f"avoided since hosts failed there: {describe_avoided(avoided)}"
    return Waiting(Reason.NODES_AVOIDED, f"{waiting.message}; {whom}")


def _without(pod: Manifest, expressions: Sequence[Manifest]) -> Manifest:
    """Return a pod without some expressions of its required node affinity."""
    terms = [{"matchExpressions": [e for e in term if e not in expressions]} for term in _affinity_terms(pod)]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**pod, "spec": {**pod["spec"], "affinity": {"nodeAffinity": required}}}


def _explain_unschedulable(
    pod: Manifest, message: str, nodes: Sequence[NodeSummary] | None, demand: NodeDemand | None
) -> Waiting:
    words = Waiting(Reason.UNSCHEDULABLE, f"no node takes the pods: {_cut(message)}")
    if nodes is None:
        return words
    matching = [node for node in nodes if _matches(pod, node)]
    if not matching:
        wanted = _describe_wanted(pod) or "room"
        needs = [] if demand is None else [f"the job needs {demand.describe()}"]
        message_text = "; ".join([f"no node has {wanted}", *needs, _describe_pools(pod, nodes)])
        return Waiting(Reason.NO_MATCHING_NODE_POOL, message_text)
    tolerations = pod["spec"].get("tolerations") or []
    obstacles = [_find_obstacle(node, tolerations) for node in matching]
    if all(obstacles):
        return _explain_obstacles([str(obstacle) for obstacle in obstacles], message)
    if NO_ROOM.search(message.partition(PREEMPTION)[0]) is None:
        # Nodes would do as far as can be seen from here: why they don't, only the scheduler knows.
        return words
    barred = [obstacle for obstacle in obstacles if obstacle]
    apart = f" (not counted: {_describe_obstacles(barred)})" if barred else ""
    usable = [node for node, obstacle in zip(matching, obstacles, strict=True) if obstacle is None]
    room = f"{_count_nodes(len(usable))}, but none has room for {_describe_requests(pod)}"
    return Waiting(Reason.INSUFFICIENT_CAPACITY, f"{room}{_tell_size(pod, usable)}{apart}: {_cut(message)}")


def _tell_size(pod: Manifest, nodes: Sequence[NodeSummary]) -> str:
    """Say that each of these nodes is too small for a pod, however empty it is, if they are."""
    asked: dict[str, str] = _main_resources(pod).get("requests", {})
    short = [{key for key in SIZES if key in asked and _lacks(node, key, asked[key])} for node in nodes]
    if not all(short):
        return ""
    largest = [
        f"{max((node.allocatable.get(key, '0') for node in nodes), key=parse_quantity)} {key}"
        for key in SIZES
        if all(key in lacking for lacking in short)
    ]
    return f", nor has when it is empty (at most {', '.join(largest)})" if largest else ", even when empty"


def _lacks(node: NodeSummary, key: str, amount: str) -> bool:
    if not node.allocatable:
        return False
    return parse_quantity(node.allocatable.get(key, "0")) < parse_quantity(amount)


def _explain_obstacles(obstacles: Sequence[str], message: str) -> Waiting:
    """Return why pods can be placed on none of the nodes that match, each of which has an obstacle."""
    taints = [obstacle for obstacle in obstacles if obstacle not in OUT_OF_SERVICE]
    reason = Reason.UNTOLERATED_TAINT if taints else Reason.INSUFFICIENT_CAPACITY
    if len(taints) == len(obstacles) and len(set(taints)) == 1:
        whose = "its" if len(taints) == 1 else "their"
        text = f"{_count_nodes(len(taints))}, but the job doesn't tolerate {whose} taint {taints[0]}"
        return Waiting(reason, text)
    text = f"{_count_nodes(len(obstacles))}, but none can be used: {_describe_obstacles(obstacles)}"
    return Waiting(reason, text if taints else f"{text}: {_cut(message)}")


def _describe_obstacles(obstacles: Iterable[str]) -> str:
    """Return how many nodes can't be used, by what keeps pods off them."""
    counts = Counter(obstacles)
    out = [f"{counts.pop(state)} {state}" for state in OUT_OF_SERVICE if state in counts]
    most = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    tainted = [f"{count} with the taint {taint}" for taint, count in most[:MOST_POOLS]]
    return ", ".join([*tainted, *out])


def _find_obstacle(node: NodeSummary, tolerations: Sequence[Manifest]) -> str | None:
    """Return what keeps pods off a node, however empty it is: its state or a taint. None: nothing does."""
    if node.avoided:
        return AVOIDED
    if not node.ready:
        return NOT_READY
    if node.cordoned and not any(_tolerates(toleration, *CORDON) for toleration in tolerations):
        return CORDONED
    return _untolerated(node, tolerations)


def _count_nodes(count: int) -> str:
    return "1 node matches" if count == 1 else f"{count} nodes match"


def _matches(pod: Manifest, node: NodeSummary) -> bool:
    """Return whether a pod's node selector and required node affinity let it run on a node."""
    selector: Mapping[str, str] = pod["spec"].get("nodeSelector") or {}
    terms = _affinity_terms(pod)
    return all(node.labels.get(key) == value for key, value in selector.items()) and (
        not terms or any(all(_expression_holds(e, node.labels) for e in term) for term in terms)
    )


def _affinity_terms(pod: Manifest) -> list[list[Manifest]]:
    """Return the expressions on labels of each alternative of the required node affinity."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return [term.get("matchExpressions") or [] for term in required.get("nodeSelectorTerms") or []]


def _expression_holds(expression: Manifest, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            # Gt and Lt, which Fray never writes: taken as met, so that no node is left out wrongly.
            return True


def _describe_wanted(pod: Manifest) -> str:
    selector: Mapping[str, str] = pod["spec"].get("nodeSelector") or {}
    wanted = [f"{key}={value}" for key, value in sorted(selector.items())]
    alternatives = [
        ", ".join(
            f"{e['key']} {e['operator']} {'/'.join(e.get('values') or [])}".rstrip() for e in expressions
        )
        for expressions in _affinity_terms(pod)
    ]
    # A term is empty where all it asked for was to keep off avoided nodes.
    return ", ".join(filter(None, [*wanted, " or ".join(filter(None, alternatives))]))


def _untolerated(node: NodeSummary, tolerations: Iterable[Manifest]) -> str | None:
    for key, value, effect in node.taints:
        if not any(_tolerates(toleration, key, value, effect) for toleration in tolerations):
            return f"{key}={value}:{effect}" if value else f"{key}:{effect}"
    return None


def _tolerates(toleration: Manifest, key: str, value: str, effect: str) -> bool:
    if toleration.get("effect") not in (None, "", effect):
        return False
    if toleration.get("key") not in (None, "", key):
        return False
    return toleration.get("operator") == "Exists" or toleration.get("value", "") == value


def _describe_pools(pod: Manifest, nodes: Sequence[NodeSummary]) -> str:
    """Say which node pools there are, of the accelerator that the pod asks for."""
    limits = _main_resources(pod).get("limits", {})
    if TPU_RESOURCE in limits:
        keys, what = [LABEL_TPU_ACCELERATOR, LABEL_TPU_TOPOLOGY], "TPU"
    elif GPU_RESOURCE in limits:
        keys, what = [LABEL_GPU_ACCELERATOR], "GPU"
    else:
        return f"the cluster has {format_count(len(nodes), 'node')}"
    pools: dict[tuple[str, str], int] = {}
    for node in nodes:
        if keys[0] in node.labels:
            kind = " ".join(node.labels.get(key, "?") for key in keys)
            pool = (node.labels.get(LABEL_NODE_POOL, node.name), kind)
            pools[pool] = pools.get(pool, 0) + 1
    if not pools:
        return f"the cluster has no {what} nodes at this moment (a pool scaled to zero can't be seen)"
    listed = [
        f"{name} ({kind}, {format_count(count, 'node')})"
        for (name, kind), count in sorted(pools.items())[:MOST_POOLS]
    ]
    more = f" and {len(pools) - MOST_POOLS} more" if len(pools) > MOST_POOLS else ""
    return f"the {what} node pools are {', '.join(listed)}{more}"


def _describe_requests(pod: Manifest) -> str:
    requests = _main_resources(pod).get("requests", {})
    return ", ".join(f"{value} {key}" for key, value in requests.items()) or "another pod"


def _main_resources(pod: Manifest) -> Manifest:
    for container in pod["spec"].get("containers", []):
        if container["name"] == CONTAINER:
            resources: Manifest = container.get("resources", {})
            return resources
    return {}


def _cut(message: str) -> str:
    return flatten(message, most=MESSAGE_LENGTH)

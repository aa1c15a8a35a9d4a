"""Why an attempt's pods don't run yet, in one sentence that an engineer can act on.

The scheduler's own message counts nodes; this names the node pool that is missing and those there are.
Without nodes to look at (a single-namespace installation may not read them) the scheduler's words have
to do. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fray.accelerators import (
    GPU_RESOURCE,
    LABEL_GPU_ACCELERATOR,
    LABEL_NODE_POOL,
    LABEL_TPU_ACCELERATOR,
    LABEL_TPU_TOPOLOGY,
    TPU_RESOURCE,
)
from fray.plan.observation import Waiting
from fray.vocabulary import CONTAINER, Reason

__all__ = ["NodeSummary", "build_node_summary", "derive_refusal", "derive_waiting"]

Manifest = Mapping[str, Any]

IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError"})
LEADER_WAIT = "follower pod node selector not set"
"""JobSet refuses a slice's other pods until the first has a node; they are tried again by themselves."""
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


def build_node_summary(node: Manifest) -> NodeSummary:
    """Return the summary of a node's manifest."""
    taints = tuple(
        (taint["key"], taint.get("value", ""), taint["effect"])
        for taint in node.get("spec", {}).get("taints", [])
        if taint["effect"] in ("NoSchedule", "NoExecute")
    )
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return NodeSummary(node["metadata"]["name"], node["metadata"].get("labels", {}), taints, ready)


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
) -> Waiting | None:
    """Return why pods of an attempt wait; None when nothing is wrong so far.

    `create_failures` are messages of the Job controller about pods it could not create; `nodes` is None
    where nodes can't be read.
    """
    for pod in pods:
        found = _container_trouble(pod)
        if found is not None:
            return found
    for pod in pods:
        message = _unschedulable(pod)
        if message is not None:
            return _explain_unschedulable(pod, message, nodes)
    for message in create_failures:
        if LEADER_WAIT not in message:
            return derive_refusal("pods", message)
    return None


def _container_trouble(pod: Manifest) -> Waiting | None:
    status = pod.get("status", {})
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    for container in containers:
        waiting = container.get("state", {}).get("waiting", {})
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in IMAGE_REASONS:
            text = f"image {container.get('image')!r} can't be pulled ({reason}): {_cut(message)}"
            return Waiting(Reason.IMAGE_PULL_FAILED, text)
        if reason in CONFIG_REASONS:
            text = f"container {container['name']!r} can't be set up ({reason}): {_cut(message)}"
            return Waiting(Reason.CONTAINER_CONFIG_INVALID, text)
    return None


def _unschedulable(pod: Manifest) -> str | None:
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason") or "")
    return None


def _explain_unschedulable(pod: Manifest, message: str, nodes: Sequence[NodeSummary] | None) -> Waiting:
    if nodes is None:
        return Waiting(Reason.UNSCHEDULABLE, f"no node takes the pods: {_cut(message)}")
    matching = [node for node in nodes if _matches(pod, node)]
    if not matching:
        wanted = _describe_wanted(pod) or "room"
        return Waiting(Reason.NO_MATCHING_NODE_POOL, f"no node has {wanted}; {_describe_pools(pod, nodes)}")
    ready = [node for node in matching if node.ready]
    if not ready:
        text = f"{_count_nodes(matching)}, but none is ready: {_cut(message)}"
        return Waiting(Reason.INSUFFICIENT_CAPACITY, text)
    tolerations = pod["spec"].get("tolerations") or []
    blocked = [_untolerated(node, tolerations) for node in ready]
    if all(blocked):
        # The most frequent one; the first of them when there are several.
        taint = max(blocked, key=blocked.count)
        text = f"{_count_nodes(ready)}, but the job doesn't tolerate their taint {taint}"
        return Waiting(Reason.UNTOLERATED_TAINT, text)
    wants = _describe_requests(pod)
    text = f"{_count_nodes(matching)}, but none has room for {wants}: {_cut(message)}"
    return Waiting(Reason.INSUFFICIENT_CAPACITY, text)


def _count_nodes(matching: Sequence[NodeSummary]) -> str:
    return "1 node matches" if len(matching) == 1 else f"{len(matching)} nodes match"


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
    return ", ".join([*wanted, *([" or ".join(alternatives)] if alternatives else [])])


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
        return f"the cluster has {_nodes(len(nodes))}"
    pools: dict[tuple[str, str], int] = {}
    for node in nodes:
        if keys[0] in node.labels:
            kind = " ".join(node.labels.get(key, "?") for key in keys)
            pool = (node.labels.get(LABEL_NODE_POOL, node.name), kind)
            pools[pool] = pools.get(pool, 0) + 1
    if not pools:
        return f"the cluster has no {what} nodes at this moment (a pool scaled to zero can't be seen)"
    listed = [
        f"{name} ({kind}, {_nodes(count)})" for (name, kind), count in sorted(pools.items())[:MOST_POOLS]
    ]
    more = f" and {len(pools) - MOST_POOLS} more" if len(pools) > MOST_POOLS else ""
    return f"the {what} node pools are {', '.join(listed)}{more}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


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
    flat = " ".join(message.split())
    return flat if len(flat) <= MESSAGE_LENGTH else flat[: MESSAGE_LENGTH - 3] + "..."

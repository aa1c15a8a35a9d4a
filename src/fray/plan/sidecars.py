"""Further containers of a podTemplate: native sidecars, so that the pod ends with the job's own container.

A pod ends when all its containers have ended, and its chips are free only then. A native sidecar is an init
container that keeps running: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/. The
kubelet restarts it whenever it ends, and ends it after the containers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fray.accelerators import GPU_RESOURCE, TPU_RESOURCE
from fray.plan.manifests import Fact, Manifest
from fray.termination import Ending, TerminationMessage
from fray.vocabulary import CONTAINER

__all__ = ["describe_failing_sidecar", "find_sidecars", "use_native_sidecars"]

DOCS = "https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/"
ACCELERATORS = frozenset({TPU_RESOURCE, GPU_RESOURCE})
FAILING_RESTARTS = 3
"""Restarts of a sidecar in one pod from which it is reported: fewer may be the network's at its start."""


def use_native_sidecars(spec: dict[str, Any]) -> list[Fact]:
    """Turn the further containers of a pod spec into native sidecars, in place; return what to explain.

    A container that requests accelerators stays one: it is a part of the job. Kubernetes ends it with main
    only by ending the pod, so one that runs on takes the logs along.
    """
    facts = []
    containers, sidecars = [], []
    for container in spec["containers"]:
        name, image = container["name"], str(container.get("image") or "(no image)")
        if name == CONTAINER:
            containers.append(container)
        elif _requests_accelerators(container):
            why = (
                "it requests accelerators, so it is no sidecar: the pod ends when this has ended too, and is "
                "deleted with its logs if this runs for a minute longer than main"
            )
            facts.append(Fact(f"container {name}", image, why))
            containers.append(container)
        else:
            why = "a native sidecar: it starts before main, is restarted if it ends, and is ended after main"
            facts.append(Fact(f"sidecar {name}", image, why, DOCS))
            sidecars.append({**container, "restartPolicy": "Always"})
    spec["containers"] = containers
    if sidecars:
        spec["initContainers"] = [*(spec.get("initContainers") or []), *sidecars]
    return facts


def _requests_accelerators(container: Manifest) -> bool:
    resources = container.get("resources")
    if not isinstance(resources, Mapping):
        return False
    amounts = (resources.get("requests"), resources.get("limits"))
    return any(isinstance(each, Mapping) and ACCELERATORS & each.keys() for each in amounts)


def find_sidecars(pod: Manifest) -> frozenset[str]:
    """Return the names of a pod's native sidecars."""
    containers = pod.get("spec", {}).get("initContainers") or []
    return frozenset(each["name"] for each in containers if each.get("restartPolicy") == "Always")


def describe_failing_sidecar(pods: Iterable[Manifest]) -> str | None:
    """Return which sidecar doesn't stay up, None where all do.

    One that said why it can't run is named from its first end. The sentence holds no count of restarts: it
    would change the status with each of them.
    """
    for pod in sorted(pods, key=lambda each: str(each["metadata"]["name"])):
        sidecars = find_sidecars(pod)
        for container in pod.get("status", {}).get("initContainerStatuses") or []:
            if container["name"] not in sidecars:
                continue
            end = _find_end(container)
            words = TerminationMessage.from_json(str(end.get("message", "")))
            unrun = words is not None and words.ending is Ending.NEVER_RAN
            if not unrun and container.get("restartCount", 0) < FAILING_RESTARTS:
                continue
            how = f" with exit code {end['exitCode']}" if "exitCode" in end else ""
            why = f": {' '.join(words.lines)}" if words is not None and unrun else ""
            name = pod["metadata"]["name"]
            return f"sidecar {container['name']!r} of pod {name} ends again and again{how}{why}"
    return None


def _find_end(container: Manifest) -> Manifest:
    """Return how a container ended last, empty where it hasn't yet."""
    for state in (container.get("state", {}), container.get("lastState", {})):
        if "terminated" in state:
            ended: Manifest = state["terminated"]
            return ended
    return {}

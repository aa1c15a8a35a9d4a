"""How objects of Kubernetes are read: a field that is missing, or null, is as good as an empty one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Manifest", "find_condition", "list_containers"]

Manifest = Mapping[str, Any]
"""An object, or a part of one, as it is on the API server."""


def find_condition(manifest: Manifest, *types: str, status: str | None = None) -> Manifest:
    """Return an object's first condition of one of these types, and of this status; empty if it has none."""
    for condition in (manifest.get("status") or {}).get("conditions") or []:
        if condition.get("type") in types and status in (None, condition.get("status")):
            found: Manifest = condition
            return found
    return {}


def list_containers(pod: Manifest) -> list[Manifest]:
    """Return what a pod's status tells of its containers, init containers first."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]

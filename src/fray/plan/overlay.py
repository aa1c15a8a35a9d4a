"""Merging a user's podTemplate over the one Fray builds, by identity key.

The rules are those of a strategic merge in Kubernetes: maps merge key by key, lists whose items have an
identity (a container's name, a variable's name, a mount's path) merge item by item, other lists are
replaced, null removes. Nothing here knows what the fields mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["IDENTITY_KEYS", "merge_overlay"]

IDENTITY_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "protocol"),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
}
"""Merge keys of a pod's lists (Kubernetes API conventions, `patchMergeKey` in core/v1 types)."""

APPENDED = frozenset({"tolerations", "envFrom"})
"""Lists without an identity whose items add up: replacing them would silently drop Fray's own."""

ONE_SOURCE = frozenset({"volumes", "resourceClaims"})
"""Lists whose items are a name and exactly one source, so that two of them can't be merged."""

DEFAULTS: Mapping[str, Any] = {"protocol": "TCP"}
"""Values that the API server gives to an identity field that isn't written."""


def merge_overlay(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `overlay` merged over it; neither is changed.

    Items of a list keep the base's order, new ones follow. A null in the overlay removes the field.
    """
    merged = dict(base)
    for key, value in overlay.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            under = merged.get(key)
            merged[key] = merge_overlay(under if isinstance(under, Mapping) else {}, value)
        elif isinstance(value, list):
            merged[key] = _merge_list(key, merged.get(key), value)
        else:
            merged[key] = value
    return merged


def _merge_list(key: str, base: object, overlay: Sequence[Any]) -> list[Any]:
    under = list(base) if isinstance(base, list) else []
    if key in APPENDED:
        return under + [item for item in overlay if item not in under]
    identity = IDENTITY_KEYS.get(key)
    if identity is None or not all(_has_identity(item, identity) for item in overlay):
        return list(overlay)
    merged = {_identity_of(item, identity): item for item in under}
    for item in overlay:
        name = _identity_of(item, identity)
        merged[name] = _merge_item(key, merged.get(name, {}), item)
    return list(merged.values())


def _merge_item(key: str, base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    if key == "env":
        # A variable is a value or a reference, never both: the overlay's form replaces the other one.
        return merge_overlay({}, overlay)
    sources = overlay.keys() - {"name"}
    if key in ONE_SOURCE and sources and not sources & base.keys():
        # As `retainKeys` in Kubernetes: another source replaces the one that was there.
        return merge_overlay({}, overlay)
    return merge_overlay(base, overlay)


def _has_identity(item: object, identity: tuple[str, ...]) -> bool:
    """Return whether an item has an identity; a map or list in its place is the API server's to refuse."""
    if not isinstance(item, Mapping) or identity[0] not in item:
        return False
    return not any(isinstance(part, Mapping | list) for part in _identity_of(item, identity))


def _identity_of(item: Mapping[str, Any], identity: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(part, DEFAULTS.get(part)) for part in identity)

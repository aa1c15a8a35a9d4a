"""A user's podTemplate: what keeps it from being merged, and the merge over the one Fray builds.

The rules are those of a strategic merge in Kubernetes: maps merge key by key, lists whose items have an
identity (a container's name, a variable's name, a mount's path) merge item by item, other lists are
replaced, null removes. Nothing here knows what the fields mean.

The API server passes podTemplate's fields on unread (`fray.wire.pod_schema`), so whatever the merge and the
pod template rely on is checked here, once, and answered by `Accepted=False`. Each answer names its field and
what to do. Whether the merged pod is a legal one is the API server's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fray.errors import FieldError, InvalidJobError
from fray.plan.observation import Waiting
from fray.vocabulary import Reason
from fray.wire.frayjob import FrayJob

__all__ = ["IDENTITY_KEYS", "check_overlay", "derive_unsupported", "merge_overlay"]

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

MOST_PROBLEMS = 5
ROOT = "spec.podTemplate"
NAMED_LISTS = ("containers", "initContainers", "volumes")
GRACE = "terminationGracePeriodSeconds"


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


def derive_unsupported(job: FrayJob) -> Waiting | None:
    """Return why the operator can't run this job, or None."""
    overlays = {ROOT: job.spec.pod_template, "spec.workers.podTemplate": job.spec.workers.pod_template}
    problems = [
        str(problem)
        for root, overlay in overlays.items()
        for problem in _find_overlay_problems(overlay or {}, root=root)
    ]
    if problems:
        more = [f"and {len(problems) - MOST_PROBLEMS} more"] if len(problems) > MOST_PROBLEMS else []
        return Waiting(Reason.POD_TEMPLATE_INVALID, "; ".join([*problems[:MOST_PROBLEMS], *more]))
    return None


def check_overlay(job_name: str, overlay: Mapping[str, Any]) -> None:
    """Refuse an overlay that can't be merged by identity.

    Raises `InvalidJobError` with every field that is wrong.
    """
    problems = tuple(_find_overlay_problems(overlay))
    if problems:
        raise InvalidJobError(job_name, problems)


def _find_overlay_problems(overlay: Mapping[str, Any], *, root: str = ROOT) -> Iterator[FieldError]:
    """Yield every field that keeps an overlay from being merged by identity."""
    for part in ("metadata", "spec"):
        if part in overlay and not isinstance(overlay[part], Mapping):
            yield FieldError(f"{root}.{part}", "must be a mapping")
    spec = overlay.get("spec")
    if not isinstance(spec, Mapping):
        return
    path = f"{root}.spec"
    for key in NAMED_LISTS:
        yield from _unnamed(spec.get(key), f"{path}.{key}")
    if "containers" in spec and spec["containers"] is None:
        yield FieldError(f"{path}.containers", "can't be removed: they run the job")
    grace = spec.get(GRACE)
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int) or grace < 0):
        yield FieldError(f"{path}.{GRACE}", "must be a whole number of seconds")
    for key in ("containers", "initContainers"):
        containers = spec.get(key)
        for index, container in enumerate(containers if isinstance(containers, list) else []):
            if isinstance(container, Mapping):
                yield from _unnamed(container.get("env"), f"{path}.{key}[{index}].env")


def _unnamed(items: object, path: str) -> Iterator[FieldError]:
    """Yield what keeps a list from being merged by the names of its items; null removes it, which is fine."""
    if items is None:
        return
    if not isinstance(items, list):
        yield FieldError(path, "must be a list of mappings, each with a name")
        return
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            yield FieldError(f"{path}[{index}]", "must be a mapping with a name")
        elif not isinstance(item.get("name"), str) or not item["name"]:
            yield FieldError(f"{path}[{index}].name", "must be set: items are merged by it")

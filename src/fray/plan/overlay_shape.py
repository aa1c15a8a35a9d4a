"""What a podTemplate overlay must look like before it can be merged.

The API server passes the overlay's fields on unread (`fray.wire.pod_schema`), so whatever the merge and
the pod template rely on is checked here, once. Whether the merged pod is a legal one is the API server's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fray.errors import FieldError, InvalidJobError

__all__ = ["check_overlay", "find_overlay_problems"]

ROOT = "spec.podTemplate"
NAMED_LISTS = ("containers", "initContainers", "volumes")
GRACE = "terminationGracePeriodSeconds"


def check_overlay(job_name: str, overlay: Mapping[str, Any]) -> None:
    """Refuse an overlay that can't be merged by identity.

    Raises `InvalidJobError` with every field that is wrong.
    """
    problems = tuple(find_overlay_problems(overlay))
    if problems:
        raise InvalidJobError(job_name, problems)


def find_overlay_problems(overlay: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield every field that keeps an overlay from being merged by identity."""
    for part in ("metadata", "spec"):
        if part in overlay and not isinstance(overlay[part], Mapping):
            yield FieldError(f"{ROOT}.{part}", "must be a mapping")
    spec = overlay.get("spec")
    if not isinstance(spec, Mapping):
        return
    path = f"{ROOT}.spec"
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

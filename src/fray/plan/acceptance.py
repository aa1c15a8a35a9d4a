"""What the API server accepts and can't be run: answered by `Accepted=False`, never ignored.

That is a podTemplate that can't be merged. Each answer names its field and what to do. The API server passes
podTemplate's fields on unread (`fray.wire.pod_schema`), so whatever the merge and the pod template rely on is
checked here, once. Whether the merged pod is a legal one is the API server's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fray.errors import FieldError, InvalidJobError
from fray.plan.observation import Waiting
from fray.vocabulary import Reason
from fray.wire.frayjob import FrayJob

__all__ = ["check_overlay", "derive_unsupported"]

MOST_PROBLEMS = 5
ROOT = "spec.podTemplate"
NAMED_LISTS = ("containers", "initContainers", "volumes")
GRACE = "terminationGracePeriodSeconds"


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

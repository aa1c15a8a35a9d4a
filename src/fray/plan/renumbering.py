"""The JobSet of a queued job that Kueue evicted: kept, and resumed as the job's next attempt.

Kueue suspends a JobSet that it evicts and resumes the same one later, with its place in the queue. While it
is suspended, JobSet lets the labels of its pod template change, and gives them to its Jobs as it is resumed:
https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/jobset_webhook.go. The pods take the
number of their attempt from such a label. Kueue puts the template back as it first was with each eviction, so
the number is checked whenever the JobSet is suspended, not once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from fray.plan.pod_observation import is_ending, is_jobset_finished
from fray.vocabulary import CONTAINER, ENV_ATTEMPT, LABEL_ATTEMPT

__all__ = ["build_renumbered", "is_misnumbered", "trim_number"]

Manifest = Mapping[str, Any]

LABEL_LENGTH = 63
"""The longest that Kubernetes takes for a label's value."""


def is_misnumbered(jobset: Manifest, number: int) -> bool:
    """Return whether pods that a JobSet makes would carry the number of another attempt."""
    return any(_read_label(template) not in (None, str(number)) for template in _templates(jobset))


def build_renumbered(jobset: Manifest, number: int) -> dict[str, Any] | None:
    """Return a JobSet with the number of another attempt on itself and on the pods that it will make.

    None where that can't be: it isn't suspended, it has ended, or its program has its number from elsewhere.
    """
    if not jobset["spec"].get("suspend") or is_jobset_finished(jobset) is not None or is_ending(jobset):
        return None
    renumbered: dict[str, Any] = copy.deepcopy(dict(jobset))
    templates = list(_templates(renumbered))
    if not all(map(_has_number_from_label, templates)):
        return None
    for metadata in (renumbered["metadata"], *(template["metadata"] for template in templates)):
        metadata["labels"][LABEL_ATTEMPT] = str(number)
    return renumbered


def trim_number(jobset: Manifest) -> list[dict[str, Any]]:
    """Return what `is_misnumbered` needs of a JobSet's `spec.replicatedJobs`: little of one of them."""
    for template in _templates(jobset):
        if (label := _read_label(template)) is not None:
            # Anybody may write more there than fits into memory.
            metadata = {"labels": {LABEL_ATTEMPT: label[:LABEL_LENGTH]}}
            return [{"template": {"spec": {"template": {"metadata": metadata}}}}]
    return []


def _templates(jobset: Manifest) -> Iterator[Any]:
    for replicated in jobset.get("spec", {}).get("replicatedJobs", []):
        yield replicated.get("template", {}).get("spec", {}).get("template", {})


def _read_label(template: Manifest) -> str | None:
    label: str | None = template.get("metadata", {}).get("labels", {}).get(LABEL_ATTEMPT)
    return label


def _has_number_from_label(template: Manifest) -> bool:
    path = f"metadata.labels['{LABEL_ATTEMPT}']"
    return any(
        entry["name"] == ENV_ATTEMPT
        and entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") == path
        for container in template["spec"]["containers"]
        if container["name"] == CONTAINER
        for entry in container.get("env", [])
    )

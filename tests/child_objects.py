"""Jobs and pods as JobSet, its webhook and the Job controller make them of a JobSet."""

from __future__ import annotations

import hashlib
from typing import Any

from fray import vocabulary as words

__all__ = ["build_job", "build_pod"]

Manifest = dict[str, Any]

OF_JOB = (words.LABEL_JOBSET_NAME, words.LABEL_JOBSET_UID, words.LABEL_REPLICATED_JOB, words.LABEL_JOB_INDEX)
"""Labels that pods have from their Job."""


def build_job(jobset: Manifest, index: int) -> Manifest:
    """Return the Job of a slice of a JobSet."""
    metadata, (group,) = jobset["metadata"], jobset["spec"]["replicatedJobs"]
    labels = {
        **group["template"]["metadata"].get("labels", {}),
        words.LABEL_JOBSET_NAME: metadata["name"],
        words.LABEL_JOBSET_UID: metadata["uid"],
        words.LABEL_REPLICATED_JOB: group["name"],
        words.LABEL_JOB_INDEX: str(index),
    }
    return {
        "metadata": {
            "name": f"{metadata['name']}-{group['name']}-{index}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [_refer_to(words.JOBSET_API_VERSION, "JobSet", jobset)],
        },
        "spec": group["template"]["spec"],
    }


def build_pod(job: Manifest, host: int) -> Manifest:
    """Return the pod of a host of a Job of a JobSet; for the same host it has the same name."""
    metadata, template = job["metadata"], job["spec"]["template"]
    suffix = hashlib.sha256(f"{metadata['uid']}-{host}".encode()).hexdigest()[:5]
    return {
        "metadata": {
            "name": f"{metadata['name']}-{host}-{suffix}",
            "namespace": metadata["namespace"],
            "labels": {
                **template["metadata"].get("labels", {}),
                **{label: metadata["labels"][label] for label in OF_JOB},
                words.LABEL_COMPLETION_INDEX: str(host),
                "batch.kubernetes.io/job-name": metadata["name"],
            },
            "annotations": template["metadata"].get("annotations", {}),
            "ownerReferences": [_refer_to("batch/v1", "Job", job)],
        },
        "spec": {**template["spec"], "hostname": f"{metadata['name']}-{host}"},
    }


def _refer_to(version: str, kind: str, controller: Manifest) -> Manifest:
    """Return the reference to the controller of an object."""
    name, uid = controller["metadata"]["name"], controller["metadata"]["uid"]
    return {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}

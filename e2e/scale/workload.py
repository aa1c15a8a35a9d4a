"""The same job twice: as a FrayJob, and as the very JobSet that Fray would make of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from e2e.cluster.images import BUSYBOX_IMAGE
from fray.plan.jobset import build_attempt
from fray.plan.settings import PlanSettings
from fray.vocabulary import API_VERSION, FRAYJOB_KIND
from fray.wire.frayjob import FrayJob

__all__ = ["PLACEMENT", "RUNS_ON", "build_frayjob", "build_jobset"]

PLACEMENT = {
    "nodeSelector": {"fray.test/fake": "true"},
    "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
}


RUNS_ON = {"metadata": {"annotations": {"pod-complete.stage.kwok.x-k8s.io/delay": "24h"}}}
"""Overlay on the pods of a job that doesn't end."""


def build_frayjob(name: str, **spec: Any) -> dict[str, Any]:
    """A job of one pod, on fake nodes only; `spec` are further fields of its spec."""
    return {
        "apiVersion": API_VERSION,
        "kind": FRAYJOB_KIND,
        "metadata": {"name": name},
        "spec": {
            "entrypoint": {"command": ["true"]},
            "environment": {"image": BUSYBOX_IMAGE},
            "placement": PLACEMENT,
            **spec,
        },
    }


def build_jobset(name: str, **spec: Any) -> Mapping[str, Any]:
    """The JobSet of that job's first attempt, owned by nobody."""
    job = FrayJob.model_validate(build_frayjob(name, **spec))
    return build_attempt(job, attempt=1, settings=PlanSettings()).jobset

"""Builders of FrayJobs, pods and JobSets, for tests of programs that read what Kubernetes returns.

They are what Fray's own tests are written with: fields, words and conditions are those of Kubernetes 1.34 and
JobSet 0.12.
"""

from __future__ import annotations

from fray.testing.manifests import (
    MOMENT,
    build_disruption_mark,
    build_frayjob,
    build_jobset,
    build_pod,
    exited,
    running,
    waiting,
)

__all__ = [
    "MOMENT",
    "build_disruption_mark",
    "build_frayjob",
    "build_jobset",
    "build_pod",
    "exited",
    "running",
    "waiting",
]

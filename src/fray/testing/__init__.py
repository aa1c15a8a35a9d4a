"""What tests of programs that use Fray need: FrayJobs, pods and JobSets, and a cluster without Kubernetes.

Fray's own tests are written with them. Fields, words and conditions are those of Kubernetes 1.34 and
JobSet 0.12. Moments are texts, as Kubernetes writes them.
"""

from __future__ import annotations

from fray.testing.builders import (
    MOMENT,
    build_disruption_mark,
    build_end,
    build_frayjob,
    build_jobset,
    build_pod,
    exited,
    running,
    waiting,
)
from fray.testing.cluster import FakeCluster
from fray.testing.memory import Call

__all__ = [
    "MOMENT",
    "Call",
    "FakeCluster",
    "build_disruption_mark",
    "build_end",
    "build_frayjob",
    "build_jobset",
    "build_pod",
    "exited",
    "running",
    "waiting",
]

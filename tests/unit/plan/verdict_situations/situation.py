"""One row of the table: what was seen of an attempt, moment by moment, and how it must be judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fray.vocabulary import Reason, VerdictKind
from tests.unit.plan.verdict_situations.manifests import jobset, ready_nodes

__all__ = [
    "CONTAINERD",
    "E2E",
    "GKE",
    "JOBSET",
    "KUBERNETES",
    "PAIR",
    "SINGLE",
    "SLICES",
    "Scene",
    "Situation",
    "failure",
    "preemption",
]

Manifest = dict[str, Any]

KUBERNETES = "made from https://github.com/kubernetes/kubernetes/blob/v1.34.4/"
JOBSET = "made from https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/"
CONTAINERD = "made from https://github.com/containerd/containerd/blob/v1.7.28/"
GKE = "made from https://cloud.google.com/kubernetes-engine/docs/"
E2E = "as a real cluster brings it about in e2e/"
"""The manifests are made all the same; the scenario of that name ends alike on a real cluster."""

SINGLE: dict[str, Any] = {}
PAIR: dict[str, Any] = {"replicas": 2}
"""A gang of two hosts."""
SLICES: dict[str, Any] = {"replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}}
"""Two slices of two hosts: ranks 0 and 1, 2 and 3."""


@dataclass(frozen=True)
class Scene:
    """What there is from a moment on, in seconds after the first failure.

    `jobset` is None once it is gone, `nodes` None where they may not be read. `gone` are pods that aren't
    there any more, as somebody saw them last.
    """

    at: float
    pods: tuple[Manifest, ...]
    jobset: Manifest | None = field(default_factory=lambda: jobset("Failed"))
    jobs: tuple[Manifest, ...] = ()
    gone: tuple[Manifest, ...] = ()
    nodes: tuple[Manifest, ...] | None = field(default_factory=ready_nodes)


@dataclass(frozen=True)
class Situation:
    """A situation and its verdict.

    `shape` is the FrayJob's spec, `source` where its words are from, and whether a real cluster was seen to
    bring it about. `first` is the rank that is named, None where no host is to blame; `code` its exit code;
    `says` are words of the message. `pod` is False where nobody saw the pod. `within` is the number of
    seconds after which the attempt must have its verdict, `ran` whether all its hosts had run.
    """

    name: str
    source: str
    scenes: tuple[Scene, ...]
    reason: Reason
    verdict: VerdictKind
    says: tuple[str, ...]
    first: int | None = 0
    code: int | None = None
    shape: dict[str, Any] = field(default_factory=dict)
    pod: bool = True
    within: float = 10
    ran: bool = True


def failure(name: str, source: str, *scenes: Scene, says: tuple[str, ...], **more: Any) -> Situation:
    """Return a situation in which a program fails: charged to failures."""
    return Situation(name, source, scenes, Reason.NON_ZERO_EXIT, VerdictKind.FAILURE, says, **more)


def preemption(name: str, source: str, *scenes: Scene, says: tuple[str, ...], **more: Any) -> Situation:
    """Return a situation in which a host is taken away: charged to preemptions."""
    return Situation(name, source, scenes, Reason.DISRUPTED, VerdictKind.PREEMPTION, says, **more)

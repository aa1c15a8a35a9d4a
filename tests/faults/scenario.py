"""A handful of jobs and what will be done to each of their attempts: pure data, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Act", "Kind", "Plan", "draw_plans"]


class Kind(StrEnum):
    """What is done to an attempt, or to its job while it runs."""

    SUCCEED = "all hosts exit with 0"
    CRASH = "a host exits with a code"
    CRASH_ALL = "a host exits with a code, and its peers crash after it"
    SIGNAL = "a host dies of SIGSEGV"
    OUT_OF_MEMORY = "a host runs out of memory"
    EVICT = "a pod is evicted, and gone"
    SHUT_DOWN = "a node shuts down gracefully"
    DELETE_POD = "somebody deletes a pod"
    DELETE_JOBSET = "somebody deletes the JobSet"
    SUSPEND_JOBSET = "somebody else suspends the JobSet"
    MISPLACE = "JobSet removes a misplaced pod"
    NEVER_PLACED = "no pod gets a node"
    RUN_TOO_LONG = "runs longer than spec.timeouts.activeSeconds"
    RUN_FOREVER = "runs until spec.timeouts.totalSeconds"
    SUSPEND = "its user suspends the job, and resumes it"
    STOP = "its user stops the job"
    DELETE = "its user deletes the job"
    STOP_EARLY = "its user stops the job while it may be starting"
    DELETE_EARLY = "its user deletes the job while it may be starting"
    CRASH_AND_STOP = "a host exits with a code, and about then its user stops the job"
    SUCCEED_AND_STOP = "all hosts exit with 0, and about then its user stops the job"
    CRASH_THEN_STOP = "a host exits with a code, and its user stops the job between two attempts"
    CRASH_THEN_DELETE = "a host exits with a code, and its user deletes the job between two attempts"
    CRASH_THEN_SUSPEND = "a host exits with a code, and its user suspends and resumes the job after that"


ANYWHERE = {
    Kind.SUCCEED: 6,
    Kind.CRASH: 10,
    Kind.CRASH_ALL: 5,
    Kind.SIGNAL: 3,
    Kind.OUT_OF_MEMORY: 3,
    Kind.EVICT: 10,
    Kind.SHUT_DOWN: 6,
    Kind.DELETE_POD: 5,
    Kind.DELETE_JOBSET: 4,
    Kind.SUSPEND_JOBSET: 4,
    Kind.MISPLACE: 3,
    Kind.NEVER_PLACED: 1,
    Kind.RUN_TOO_LONG: 1,
    Kind.SUSPEND: 6,
    Kind.STOP: 3,
    Kind.DELETE: 3,
    Kind.CRASH_AND_STOP: 3,
    Kind.SUCCEED_AND_STOP: 3,
    Kind.CRASH_THEN_STOP: 2,
    Kind.CRASH_THEN_DELETE: 2,
    Kind.CRASH_THEN_SUSPEND: 3,
}
FIRST = {Kind.STOP_EARLY: 3, Kind.DELETE_EARLY: 3, Kind.RUN_FOREVER: 1}
"""Only as the first of a job: when they come doesn't depend on its attempts."""
SHAPES: tuple[Mapping[str, Any], ...] = (
    {},
    {"replicas": 3},
    {"replicas": 2, "resources": {"gpu": {"type": "nvidia-h100-80gb", "count": 8}}},
    {"replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}},
    {"resources": {"tpu": {"type": "v5litepod-16"}}},
)
HOSTS = (1, 3, 2, 4, 4)
MOST_ATTEMPTS = 4


@dataclass(frozen=True)
class Act:
    """What is done to one attempt: `delay` seconds after all its hosts run, to the host of a rank."""

    kind: Kind
    delay: float
    rank: int
    code: int
    later: float
    """Seconds, of either sign, between it and the user's part of it."""


@dataclass(frozen=True)
class Plan:
    """One job: its spec, when it is created, and what is done to each attempt there may be."""

    name: str
    hosts: int
    slices: int
    created_at: float
    spec: Mapping[str, Any] = field(default_factory=dict)
    acts: tuple[Act, ...] = ()
    resumed_at: float | None = None
    """When a job that was created suspended is resumed, in seconds after its creation."""

    def act(self, attempt: int) -> Act:
        """Return what is done to an attempt; those that shouldn't be there succeed."""
        return self.acts[min(attempt, len(self.acts)) - 1]


def draw_plans(rng: random.Random, count: int) -> list[Plan]:
    """Return `count` jobs."""
    return [_draw(rng, f"job-{number}") for number in range(count)]


def _draw(rng: random.Random, name: str) -> Plan:
    shape = rng.randrange(len(SHAPES))
    hosts = HOSTS[shape]
    acts = []
    for number in range(MOST_ATTEMPTS - 1):
        weights = {**ANYWHERE, **(FIRST if number == 0 else {})}
        acts.append(_draw_act(rng, rng.choices(list(weights), list(weights.values()))[0], hosts))
    acts.append(_draw_act(rng, Kind.SUCCEED, hosts))
    kinds = {act.kind for act in acts}
    spec: dict[str, Any] = {"entrypoint": {"command": ["train"]}, **SHAPES[shape]}
    spec["retries"] = {
        "failures": rng.choice([0, 1, 1, 2, 5]),
        "preemptions": rng.choice([0, 1, 2, 100]),
    }
    timeouts = {}
    if Kind.NEVER_PLACED in kinds:
        timeouts["pendingSeconds"] = 600
    if Kind.RUN_TOO_LONG in kinds and Kind.RUN_FOREVER not in kinds:  # which would end by this limit first
        timeouts["activeSeconds"] = 400
    if Kind.RUN_FOREVER in kinds:
        timeouts["totalSeconds"] = 600
    if timeouts:
        spec["timeouts"] = timeouts
    resumed_at = None
    if rng.random() < 0.1 and acts[0].kind not in FIRST:
        spec["suspend"], resumed_at = True, rng.uniform(1.0, 40.0)
    slices = spec.get("replicas", 1) if "tpu" in spec.get("resources", {}) else 1
    return Plan(name, hosts, slices, rng.uniform(0.0, 30.0), spec, tuple(acts), resumed_at)


def _draw_act(rng: random.Random, kind: Kind, hosts: int) -> Act:
    return Act(
        kind,
        delay=rng.choice([0.0, 3.0, 30.0]) * rng.random(),
        rank=rng.randrange(hosts),
        code=rng.choice([1, 2, 3, 17, 42, 255]),
        later=rng.uniform(-5.0, 3.0),
    )

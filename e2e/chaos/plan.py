"""What a seed stands for: which jobs run, what their users do to them, and what is done to the cluster.

Pure: the same seed gives the same plan on any machine. Which pod or host a strike meets is up to the cluster.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from pathlib import Path
from typing import Any

from e2e.job_namespace import build_job, build_shell
from fray.vocabulary import API_VERSION, FRAYACTOR_KIND

__all__ = [
    "LANES",
    "MOST_MEMBERS",
    "PREEMPTIONS",
    "Act",
    "ActorPlan",
    "Blow",
    "Deed",
    "JobPlan",
    "Kind",
    "Lane",
    "Strike",
    "actors",
    "jobs",
    "strikes",
]


class Kind(StrEnum):
    """How a job goes, if nobody harms it."""

    SUCCEEDS = auto()
    FAILS = auto()
    RECOVERS = auto()
    """Fails at first, and has a budget that lasts until it succeeds."""
    EXHAUSTS = auto()
    """Fails until its budget is used up."""
    STOPPED = auto()
    SUSPENDED = auto()
    """Is suspended and resumed, and then succeeds."""
    DELETED = auto()
    EXPIRES = auto()
    """Succeeds, and is removed by its time to live."""


@dataclass(frozen=True)
class Lane:
    """Jobs of one shape, one after the other: two that wait for the same accelerators could wait for ever."""

    name: str
    hosts: int
    spec: dict[str, Any]

    @property
    def has_workers(self) -> bool:
        """Whether its jobs count on workers, which come, go and are lost without any harm to the job."""
        return "workers" in self.spec


_PROGRAM = Path(__file__).parents[1] / "programs" / "count_under_harm.py"
_FOREVER = 2_000_000
PREEMPTIONS = 100
"""The budget of every job: no campaign uses it up."""
_MOST_WORKERS = 3
_SCALINGS = 6
_JOINING_SECONDS = 10
"""How much longer jobs work that wait for workers first."""
_CPU = {"resources": {"cpu": "10m"}}
_SMALL = {"resources": {"cpu": "50m", "memory": "96Mi"}}
_ALSO_ON_GPU_HOSTS = {"spec": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}}
"""More room for workers. The hosts with TPUs don't get the image that has Python alone: `e2e.node_images`."""
LANES = (
    Lane("single", 1, _CPU),
    Lane("gang", 3, {**_CPU, "replicas": 3}),
    Lane("pair", 2, {**_CPU, "replicas": 2}),
    Lane("tpu", 4, {"replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}}),
    Lane("gpu", 2, {"replicas": 2, "resources": {"gpu": {"type": "nvidia-h100-80gb", "count": 8}}}),
    Lane("workers", 1, {**_SMALL, "workers": {**_SMALL, "replicas": 2, "podTemplate": _ALSO_ON_GPU_HOSTS}}),
)


class Act(StrEnum):
    """What a user does to a job or an actor."""

    STOP = auto()
    SUSPEND = auto()
    RESUME = auto()
    DELETE = auto()
    SCALE = auto()


@dataclass(frozen=True)
class Deed:
    """One act, `after` seconds since the last; the first since the job ran, a deletion since it came.

    `workers` is how many workers or members there are to be, where that is scaled.
    """

    act: Act
    after: float
    workers: int = 0


@dataclass(frozen=True)
class JobPlan:
    """One job. All its hosts work `seconds` (None: until they are ended), then exit.

    The first `failing` attempts exit with `exit_code`, those after them with 0; `failures` is the budget.
    """

    name: str
    kind: Kind
    lane: Lane
    seconds: int | None
    failing: int = 0
    exit_code: int = 3
    failures: int = 0
    deeds: tuple[Deed, ...] = ()
    ttl: int | None = None

    def exit_of(self, attempt: int) -> int | None:
        """The exit code of an attempt that nobody harms; None when it doesn't end by itself."""
        if self.seconds is None:
            return None
        return self.exit_code if attempt <= self.failing else 0

    def to_manifest(self) -> dict[str, Any]:
        """The FrayJob."""
        retries = {"failures": self.failures, "preemptions": PREEMPTIONS}
        more = {} if self.ttl is None else {"ttlSecondsAfterFinished": self.ttl}
        seconds = _FOREVER if self.seconds is None else self.seconds
        if self.lane.has_workers:
            program = _PROGRAM.read_text(encoding="utf-8")
            command = ["python3", "-c", program, str(seconds), str(self.failing), str(self.exit_code)]
            return build_job(self.name, command, retries=retries, **self.lane.spec, **more)
        # `wait` is left for the trap at once, `sleep` in the foreground would not be.
        script = f"""
            trap 'kill $!; exit 143' TERM
            sleep {seconds} & wait $!
            test "$FRAY_ATTEMPT" -le {self.failing} && exit {self.exit_code}
            exit 0
        """
        return build_shell(self.name, script, retries=retries, **self.lane.spec, **more)


def jobs(seed: int, lane: Lane) -> Iterator[JobPlan]:
    """Give the jobs of a lane without end: every kind once, in any order, again and again."""
    chance = random.Random(f"jobs {seed} {lane.name}")
    number = 0
    while True:
        for kind in chance.sample(list(Kind), len(Kind)):
            number += 1
            plan = _plan(f"{lane.name}-{number}-{kind.value}", kind, lane, chance)
            yield _with_scalings(plan, chance) if lane.has_workers else plan


def _plan(name: str, kind: Kind, lane: Lane, chance: random.Random) -> JobPlan:
    seconds, exit_code = chance.randint(4, 9), chance.randint(3, 9)
    soon = float(chance.randint(1, 4))
    match kind:
        case Kind.FAILS:
            return JobPlan(name, kind, lane, seconds, 1_000_000, exit_code)
        case Kind.RECOVERS:
            failing = chance.randint(1, 2)
            return JobPlan(name, kind, lane, seconds // 2, failing, exit_code, failing)
        case Kind.EXHAUSTS:
            return JobPlan(name, kind, lane, seconds // 2, 1_000_000, exit_code, 1)
        case Kind.STOPPED:
            return JobPlan(name, kind, lane, None, deeds=(Deed(Act.STOP, soon),))
        case Kind.SUSPENDED:
            deeds = (Deed(Act.SUSPEND, soon), Deed(Act.RESUME, soon))
            return JobPlan(name, kind, lane, seconds + 6, deeds=deeds)
        case Kind.DELETED:
            return JobPlan(name, kind, lane, None, deeds=(Deed(Act.DELETE, chance.uniform(0.0, 9.0)),))
        case Kind.EXPIRES:
            return JobPlan(name, kind, lane, seconds // 2, ttl=chance.randint(0, 3))
        case Kind.SUCCEEDS:
            return JobPlan(name, kind, lane, seconds)


def _with_scalings(plan: JobPlan, chance: random.Random) -> JobPlan:
    """Return a plan whose job is scaled before all that its user does to it; not one that is deleted soon."""
    if plan.kind is Kind.DELETED:
        return plan
    scalings = [
        Deed(Act.SCALE, chance.uniform(0.2, 2.0), chance.randint(1, _MOST_WORKERS)) for _ in range(_SCALINGS)
    ]
    seconds = None if plan.seconds is None else plan.seconds + _JOINING_SECONDS
    return replace(plan, seconds=seconds, deeds=(*scalings, *plan.deeds))


MOST_MEMBERS = 2
"""Of an actor."""


@dataclass(frozen=True)
class ActorPlan:
    """One actor of so many members, whose user scales it, and then ends it by the last deed."""

    name: str
    members: int
    deeds: tuple[Deed, ...]

    @property
    def leaves(self) -> bool:
        """Whether it is deleted in the end, and not stopped."""
        return self.deeds[-1].act is Act.DELETE

    def to_manifest(self) -> dict[str, Any]:
        """The FrayActor, on nodes of which strikes may delete the Node."""
        placement = {"nodePool": "gpu", **_ALSO_ON_GPU_HOSTS["spec"]}
        return {
            "apiVersion": API_VERSION,
            "kind": FRAYACTOR_KIND,
            "metadata": {"name": self.name},
            "spec": {
                "name": self.name,
                "entrypoint": {"class": "collections:Counter"},
                "replicas": self.members,
                "placement": placement,
                **_SMALL,
            },
        }


def actors(seed: int) -> Iterator[ActorPlan]:
    """Give actors without end, one in two of them stopped and the others deleted."""
    chance = random.Random(f"actors {seed}")
    number = 0
    while True:
        for act in chance.sample([Act.STOP, Act.DELETE], 2):
            number += 1
            scaled = Deed(Act.SCALE, chance.uniform(3.0, 8.0), chance.randint(1, MOST_MEMBERS))
            ended = Deed(act, chance.uniform(5.0, 15.0))
            members = chance.randint(1, MOST_MEMBERS)
            yield ActorPlan(f"actors-{number}-{act.value}", members, (scaled, ended))


class Blow(StrEnum):
    """What the agent does."""

    KILL_OPERATOR = auto()
    """SIGKILL to the process of a replica."""
    DELETE_OPERATOR = auto()
    """Deletion of a replica's pod without any grace."""
    EVICT_POD = auto()
    DELETE_POD = auto()
    KILL_WORKER = auto()
    """SIGKILL to all processes of a worker's pod, or of a member's."""
    FREEZE_KUBELET = auto()
    """SIGSTOP, and SIGCONT later."""
    KILL_KUBELET = auto()
    """SIGKILL, and a start later."""
    DELETE_NODE = auto()
    """The same, and its Node is deleted while it is down: the kubelet registers it anew."""
    CUT_WATCHES = auto()
    """All watches of the operator end."""
    EXPIRE_WATCHES = auto()
    """All watches of the operator are told 410."""
    API_STORM = auto()
    """Many of the operator's requests are answered by 429, 500 and 503, cut, late, or lied about."""


_WEIGHTS = {
    Blow.KILL_OPERATOR: 5,
    Blow.DELETE_OPERATOR: 4,
    Blow.EVICT_POD: 24,
    Blow.DELETE_POD: 20,
    Blow.KILL_WORKER: 10,
    Blow.FREEZE_KUBELET: 10,
    Blow.KILL_KUBELET: 8,
    Blow.DELETE_NODE: 5,
    Blow.CUT_WATCHES: 7,
    Blow.EXPIRE_WATCHES: 5,
    Blow.API_STORM: 12,
}
_LENGTHS = (2.0, 4.0, 7.0, 12.0)


@dataclass(frozen=True)
class Strike:
    """One blow, `after` seconds after the one before.

    `victim` chooses among what can be hit at that time, 0 the first and just below 1 the last; `seconds` is
    how long it lasts.
    """

    after: float
    blow: Blow
    victim: float
    seconds: float


def strikes(seed: int, *, every: float) -> Iterator[Strike]:
    """Give the strikes without end, one in `every` seconds on average."""
    chance = random.Random(f"strikes {seed}")
    blows, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    while True:
        gap = min(chance.expovariate(1 / every), 3 * every)
        (blow,) = chance.choices(blows, weights)
        yield Strike(gap, blow, chance.random(), chance.choice(_LENGTHS))

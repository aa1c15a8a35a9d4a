"""Which node pools the operator creates and deletes: pure, from what it sees in one pass.

Nothing is remembered between passes but what a caller hands in again: which pools are there and what runs on
them is GKE's to know. A pool's name follows from what it is, so a pass that was cut short is repeated by the
next one without a second pool. What failed waits longer each time, whatever is asked for until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from fray.errors import FrayError, NodePoolError
from fray.nodepools.answers import IN_PROGRESS, Retry, derive_error
from fray.nodepools.existing import (
    Cluster,
    Operation,
    Pool,
    derive_provisioning,
    find_missing,
    number_pools,
)
from fray.nodepools.requests import NAME_PREFIX, PoolChoices, PoolRequest, build_pool, find_zones
from fray.nodepools.usage import PoolUse
from fray.plan.observation import Waiting
from fray.plan.placement import NodeDemand
from fray.plan.texts import format_count
from fray.plan.timestamps import format_time
from fray.vocabulary import Reason

__all__ = [
    "Creation",
    "Decision",
    "Failure",
    "Limits",
    "Observation",
    "PendingGang",
    "build_refusal",
    "decide",
    "find_backoff",
    "tell_refusal",
]

LOOK_SECONDS: Final = 10.0
"""How soon it is looked again while GKE works."""
RESYNC_SECONDS: Final = 60.0
"""How soon while gangs wait or pools of ours are there: others change pools too, unannounced."""
FIRST_SECONDS: Final = {Retry.SOON: 10.0, Retry.LATER: 60.0, Retry.NEVER: 600.0}
"""Wait after a first failure; doubled for each in a row. Rights and policies change unannounced, so that
these are tried again too, but seldom."""
MOST_SECONDS: Final = 1800.0
REMEMBERED_SECONDS: Final = 7200.0
"""Failures from before then count no more."""


@dataclass(frozen=True)
class PendingGang:
    """A gang whose pods wait for nodes. `job` is `namespace/name`."""

    job: str
    demand: NodeDemand
    choices: PoolChoices = field(default_factory=PoolChoices)


@dataclass(frozen=True)
class Limits:
    """What an administrator allows. Of accelerators that `max_chips` doesn't name no pool is made."""

    max_pools: int
    max_chips: Mapping[str, int]
    idle_seconds: float


@dataclass(frozen=True)
class Failure:
    """A refusal or failure of GKE: when, and why. `shape` is that of pools to make, or a pool to delete."""

    shape: str
    at: float
    error: NodePoolError


@dataclass(frozen=True)
class Observation:
    """What one pass sees. `gangs` come in the order in which they get their pools.

    `idle_since` says since when pools have been seen idle; `failures` are refused calls, which GKE doesn't
    remember. Operations that failed are among `operations`.
    """

    now: float
    cluster: Cluster
    pools: Sequence[Pool]
    operations: Sequence[Operation]
    uses: Mapping[str, PoolUse]
    gangs: Sequence[PendingGang] = ()
    idle_since: Mapping[str, float] = field(default_factory=dict)
    failures: Sequence[Failure] = ()


@dataclass(frozen=True)
class Creation:
    """A pool to create, and for which job."""

    job: str
    pool: PoolRequest


@dataclass(frozen=True)
class Decision:
    """What to do, and after how many seconds to look again (None: when something changes).

    `waits` says, by job, why it has no pools yet, with the next step.
    """

    create: tuple[Creation, ...] = ()
    delete: tuple[str, ...] = ()
    waits: Mapping[str, Waiting] = field(default_factory=dict)
    again: float | None = None


def decide(seen: Observation, limits: Limits, *, made_by: str) -> Decision:
    """Return which pools to create and delete; only those that `made_by` made are ever deleted."""
    return _Deciding(seen, limits, made_by).run()


class _Deciding:
    """One decision; what it plans counts for the gangs that come later."""

    def __init__(self, seen: Observation, limits: Limits, made_by: str) -> None:
        self._seen, self._limits, self._made_by = seen, limits, made_by
        self._running = [each for each in seen.operations if not each.is_done]
        self._failures = [*seen.failures, *_read_failures(seen.operations)]
        self._pools = [*seen.pools]
        self._ours = [pool for pool in seen.pools if pool.made_by == made_by]
        self._count = len(self._ours)
        self._chips: dict[str, int] = {}
        for pool in self._ours:
            self._add_chips(pool.accelerator or "", pool.most_nodes * pool.chips)
        self._taken = {
            name: max(use.used_nodes, 1) if use.others or use.jobs else 0 for name, use in seen.uses.items()
        }
        self._create: list[Creation] = []
        self._waits: dict[str, Waiting] = {}
        self._again: list[float] = [LOOK_SECONDS] if self._running else []

    def run(self) -> Decision:
        """Return what comes of it."""
        blocking = next((each for each in self._running if each.pool is None), None)
        for gang in self._seen.gangs:
            if blocking is not None:
                message = f"operation {blocking.name} changes the cluster; its node pools wait for that"
                self._waits[gang.job] = Waiting(Reason.CREATING_NODE_POOLS, message)
            else:
                self._serve(gang)
        delete = [] if blocking is not None else [*self._find_unused()]
        if self._create or delete:
            self._again.append(LOOK_SECONDS)
        if self._seen.gangs or self._ours:
            self._again.append(RESYNC_SECONDS)
        again = min(self._again, default=None)
        return Decision(tuple(self._create), tuple(delete), self._waits, again)

    def _serve(self, gang: PendingGang) -> None:
        """Find pools for a gang, or plan them: all that it lacks in one zone, or none.

        Where several zones will do, one in which nothing failed lately is taken.
        """
        demand, choices = gang.demand, gang.choices
        if demand.accelerator is None:
            return
        provisioning = derive_provisioning(self._seen.cluster, demand)
        try:
            zones = find_zones(demand, choices)
            if provisioning is not None and not provisioning.limitation:
                return
            places = [(zone,) for zone in zones] if demand.own_pools and zones else [zones]
            requests = [build_pool(demand, replace(choices, zones=place)) for place in places]
        except FrayError as error:
            self._waits[gang.job] = build_refusal("PoolNotDerived", f"{error.message}. {error.next_step}")
            return
        for request in requests:
            self._count_begun(request)
        mine = {name for name, use in self._seen.uses.items() if use.jobs == {gang.job} and not use.others}
        taken = {name: 0 if name in mine else nodes for name, nodes in self._taken.items()}
        anywhere = replace(requests[0], zones=zones)
        existing, missing = find_missing(anywhere, demand, self._pools, used_nodes=taken)
        if not missing:
            self._claim(existing, anywhere, demand)
            coming = [pool for pool in existing if pool.status == "PROVISIONING"]
            if coming:
                self._waits[gang.job] = _tell_creation(len(coming), coming[0].machine_type)
            return
        if anywhere.is_slice:
            ways = [number_pools([request] * len(missing), self._pools) for request in requests]
        else:
            ways = [missing]
        waits = []
        for way in ways:
            wait = self._find_hindrance(way)
            if wait is None:
                self._claim(existing, anywhere, demand)
                self._plan(gang.job, way)
                return
            waits.append(wait)
        # Pools that are there stay for it; `kept_for` says so.
        self._waits[gang.job] = waits[0]

    def _count_begun(self, request: PoolRequest) -> None:
        """Count pools that GKE has begun to make and doesn't list yet."""
        known = {pool.name for pool in self._pools}
        for operation in self._running:
            name = operation.pool or ""
            if operation.kind != "CREATE_NODE_POOL" or name in known:
                continue
            if name.rpartition("-")[0] == request.shape:
                self._pools.append(_expect(request, name, self._made_by))

    def _claim(self, pools: Iterable[Pool], request: PoolRequest, demand: NodeDemand) -> None:
        """Keep pools for a gang from those that come later in this pass."""
        lacking = demand.slices * demand.hosts
        for pool in pools:
            free = pool.most_nodes - self._taken.get(pool.name, 0)
            nodes = pool.most_nodes if request.is_slice else min(free, lacking)
            self._taken[pool.name] = self._taken.get(pool.name, 0) + nodes
            lacking -= nodes

    def _plan(self, job: str, pools: Sequence[PoolRequest]) -> None:
        for pool in pools:
            self._create.append(Creation(job, pool))
            self._pools.append(_expect(pool, pool.name, self._made_by))
            self._taken[pool.name] = pool.most_nodes
            self._count += 1
            self._add_chips(pool.accelerator, pool.most_chips)
        self._waits[job] = _tell_creation(len(pools), pools[0].machine_type)

    def _find_hindrance(self, missing: Sequence[PoolRequest]) -> Waiting | None:
        """Return why pools can't be made now, None if they can."""
        first, limits = missing[0], self._limits
        failure, until = find_backoff(first.shape, self._failures, self._seen.now)
        if failure is not None and until > self._seen.now:
            self._again.append(until - self._seen.now)
            error = failure.error
            return tell_refusal(error, until=until)
        if self._count + len(missing) > limits.max_pools:
            amount = format_count(len(missing), "node pool")
            message = f"{amount} more are needed, and {self._count} of at most {limits.max_pools} are there"
            step = "Raise nodePools.maxPools, or wait until others are deleted."
            return Waiting(Reason.NODE_POOL_LIMIT, f"{message}. {step}")
        allowed, used = limits.max_chips.get(first.accelerator, 0), self._chips.get(first.accelerator, 0)
        needed = sum(pool.most_chips for pool in missing)
        if used + needed > allowed:
            room = f"{used} of at most {allowed} are there"
            message = f"{needed} more chips of {first.accelerator} are needed, and {room}"
            step = "Raise nodePools.maxChips for it, or wait until others are deleted."
            return Waiting(Reason.NODE_POOL_LIMIT, f"{message}. {step}")
        return None

    def _find_unused(self) -> Iterable[str]:
        """Yield our pools that failed, and those that have been idle for long enough."""
        busy = {each.pool for each in self._running}
        for pool in self._ours:
            if pool.name in busy or pool.status == "STOPPING":
                continue
            refused_until = find_backoff(pool.name, self._failures, self._seen.now)[1]
            if refused_until > self._seen.now:
                self._again.append(refused_until - self._seen.now)
                continue
            use = self._seen.uses.get(pool.name, PoolUse())
            if pool.status == "ERROR" and not use.jobs and not use.others:
                yield pool.name
            elif use.is_idle and not self._taken.get(pool.name) and pool.is_good:
                since = self._seen.idle_since.get(pool.name, self._seen.now)
                left = since + self._limits.idle_seconds - self._seen.now
                if left <= 0:
                    yield pool.name
                else:
                    self._again.append(left)

    def _add_chips(self, accelerator: str, chips: int) -> None:
        self._chips[accelerator] = self._chips.get(accelerator, 0) + chips


def tell_refusal(error: NodePoolError, *, until: float) -> Waiting:
    """Return a refusal's message for its job, the same in each pass, and when it is tried again."""
    when = format_time(datetime.fromtimestamp(until, UTC))
    message = f"{error.message}. {error.remedy} It is tried again at {when}."
    if error.reason == IN_PROGRESS:
        return Waiting(Reason.CREATING_NODE_POOLS, message)
    return build_refusal(error.reason, message)


def build_refusal(word: str, message: str) -> Waiting:
    """Return that no pools are made for a job; the word is a stable one for docs/node-pools.md to explain."""
    return Waiting(Reason.NODE_POOLS_REFUSED, f"{word}: {message}")


def _tell_creation(count: int, machine_type: str) -> Waiting:
    amount = format_count(count, "node pool")
    message = f"GKE makes {amount} of {machine_type}, which takes minutes"
    return Waiting(Reason.CREATING_NODE_POOLS, message)


def _expect(request: PoolRequest, name: str, made_by: str) -> Pool:
    """Return the pool that a request becomes."""
    return Pool(
        name=name,
        machine_type=request.machine_type,
        status="PROVISIONING",
        nodes=request.nodes,
        most_nodes=request.most_nodes,
        topology=request.topology,
        policy=None if request.policy is None else request.policy.name,
        accelerator=request.accelerator,
        chips=request.chips,
        spot=request.spot,
        flex_start=request.flex_start,
        queued=request.queued,
        reservation=request.reservation,
        zones=request.zones,
        made_by=made_by,
    )


def _read_failures(operations: Iterable[Operation]) -> list[Failure]:
    """Return the failures to create pools of Fray that GKE remembers."""
    return [
        Failure(each.pool.rpartition("-")[0], each.ended, derive_error(f"node pool {each.pool}", each.error))
        for each in operations
        if each.error and each.ended is not None and each.kind == "CREATE_NODE_POOL"
        if each.pool is not None and each.pool.startswith(NAME_PREFIX)
    ]


def find_backoff(shape: str, failures: Iterable[Failure], now: float) -> tuple[Failure | None, float]:
    """Return the last failure of a shape, and until when that is waited for."""
    recent = [each for each in failures if each.shape == shape and each.at > now - REMEMBERED_SECONDS]
    if not recent:
        return None, 0.0
    last = max(recent, key=lambda each: each.at)
    first = FIRST_SECONDS[Retry(last.error.retry)]
    return last, last.at + min(first * 2.0 ** (len(recent) - 1), MOST_SECONDS)

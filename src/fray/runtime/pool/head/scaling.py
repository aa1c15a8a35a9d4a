"""The number of a job's workers follows the work there is, or what its users ask for.

With `maxReplicas` the head writes the job's scale: more at once, fewer some time after the work has ended.
Idle workers are asked to go then; those at work are never. The order matters: a worker that goes before the
scale is lowered would be replaced. Without it users write the scale, and the head reads which number they
want. Of more than those, idle ones go first, then those that have tasks alone, once these have ended.

All on the loop of an engine's head, which is never blocked: threads read and write the scale.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from fray.errors import FrayError
from fray.runtime.api.client import ApiAccess, ApiClient
from fray.runtime.api.scale import Demand, get_replicas, set_replicas
from fray.runtime.pool.head.dispatcher import Dispatcher
from fray.runtime.pool.machine.resources import UNBOUNDED
from fray.runtime.pool.messages.events import HostLeaving, HostStaying
from fray.runtime.pool.messages.specs import DRIVER, HostId, Shape
from fray.runtime.pool.pod import read_number, read_offer
from fray.vocabulary import (
    ENV_JOB_NAME,
    ENV_JOB_UID,
    ENV_WORKERS_IDLE_SECONDS,
    ENV_WORKERS_MAX,
    ENV_WORKERS_MIN,
)

__all__ = [
    "FOLLOW_SECONDS",
    "Following",
    "JobScale",
    "PoolWorkload",
    "ScaleLimits",
    "ScaleWriter",
    "Scaling",
    "Workload",
    "keep_scale",
    "read_most",
]

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""How often it looks how much work there is."""
FAILED_SECONDS: Final = 5.0
"""How long it waits after a scale that couldn't be written."""
FOLLOW_SECONDS: Final = 3.0
"""How often it reads the scale that users write: each job with workers asks the API server for it."""


class ScaleWriter(Protocol):
    """How many workers a job asks for. Both methods block, and raise `FrayError`."""

    def read(self) -> int:
        """Return the number."""

    def write(self, replicas: int) -> None:
        """Change it, where it is another."""


@dataclass(frozen=True)
class JobScale:
    """That of the job of this pod."""

    client: ApiClient
    job: str
    job_uid: str

    @classmethod
    def from_env(cls, environ: Mapping[str, str], access: ApiAccess) -> JobScale:
        """Return that of the job that `environ` names."""
        return cls(ApiClient(access), environ[ENV_JOB_NAME], environ[ENV_JOB_UID])

    def read(self) -> int:
        """See `ScaleWriter`."""
        return get_replicas(self.client, self.job, self.job_uid)

    def write(self, replicas: int) -> None:
        """See `ScaleWriter`."""
        set_replicas(self.client, self.job, self.job_uid, replicas)


@dataclass(frozen=True)
class ScaleLimits:
    """The range of a job's workers, how long one may be idle, and what each offers (empty: not known).

    Where `most` is None users write the scale, and the rest but `least` says nothing.
    """

    least: int
    most: int | None
    idle_seconds: float = 60.0
    offered: Shape = ()

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> ScaleLimits | None:
        """Return what `environ` says; None: the number of workers is no business of the head.

        Raises `SettingError` for what is no number.
        """
        most, least = environ.get(ENV_WORKERS_MAX), environ.get(ENV_WORKERS_MIN)
        if not (most or least):
            return None
        lowest = int(read_number(least or "0", ENV_WORKERS_MIN))
        if not most:
            return cls(lowest, None)
        return cls(
            least=lowest,
            most=int(read_number(most, ENV_WORKERS_MAX)),
            idle_seconds=read_number(environ.get(ENV_WORKERS_IDLE_SECONDS) or "60", ENV_WORKERS_IDLE_SECONDS),
            offered=read_most(environ),
        )


def read_most(environ: Mapping[str, str]) -> Shape:
    """Return what a worker has at most; empty: the job's spec doesn't say. Without memory there, any amount.

    Raises `SettingError` for what is no shape.
    """
    known = dict(read_offer(environ))
    return tuple(sorted({"memory": float(UNBOUNDED), **known}.items())) if known else ()


class Workload(Protocol):
    """What the head of an engine knows of its work and its workers."""

    @property
    def stopped(self) -> bool:
        """Whether the head has ended."""

    def count_wanted(self, offered: Shape) -> int:
        """Return how many workers there is work for; `offered` is what each has (empty: not known)."""

    def count_workers(self) -> int:
        """Return how many workers there are."""

    def release(self, surplus: int) -> int:
        """Ask up to so many idle workers to go; return how many were asked."""

    def retire(self, surplus: int) -> None:
        """Ask up to so many that are at work to go once that has ended; those with actors stay."""

    def recall(self, missing: int) -> None:
        """Have up to so many take tasks again that `retire` has asked to go, and that are still there."""


@dataclass(frozen=True)
class PoolWorkload:
    """That of a pool of Fray's own engine."""

    dispatcher: Dispatcher

    @property
    def stopped(self) -> bool:
        """See `Workload`."""
        return self.dispatcher.stopped

    def count_wanted(self, offered: Shape) -> int:
        """See `Workload`."""
        return self.dispatcher.state.count_wanted_hosts(offered)

    def count_workers(self) -> int:
        """See `Workload`."""
        return self.dispatcher.state.count_worker_hosts()

    def release(self, surplus: int) -> int:
        """See `Workload`."""
        return self._let_go(self.dispatcher.state.list_idle_hosts()[:surplus])

    def retire(self, surplus: int) -> None:
        """See `Workload`."""
        self._let_go(self.dispatcher.state.list_movable_hosts()[:surplus])

    def recall(self, missing: int) -> None:
        """See `Workload`."""
        for host in self.dispatcher.state.list_recallable_hosts()[:missing]:
            self.dispatcher.handle(DRIVER, HostStaying(host))
        self.dispatcher.flush()

    def _let_go(self, hosts: tuple[HostId, ...]) -> int:
        reason = "there are more workers than asked for"
        for host in hosts:
            self.dispatcher.handle(DRIVER, HostLeaving(host, reason, recallable=True))
        self.dispatcher.flush()
        return len(hosts)


def keep_scale(
    loop: asyncio.AbstractEventLoop, workload: Workload, *, limits: ScaleLimits, scale: ScaleWriter
) -> None:
    """Keep the number of a job's workers right from now on, until the head has ended.

    Parameters: the `loop` of the head and its `workload`; the `limits`; the job's `scale`.
    """
    if limits.most is None:
        Following(loop, workload, least=limits.least, scale=scale).start()
    else:
        Scaling(loop, workload, limits=limits, most=limits.most, scale=scale).start()


class Following:
    """Lets workers go that are more than a job's users ask for, and more than `least`, from `start` on."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, workload: Workload, *, least: int, scale: ScaleWriter
    ) -> None:
        self._loop = loop
        self._workload = workload
        self._least = least
        self._scale = scale
        self._following: asyncio.Task[None] | None = None
        self._retired = False
        """Whether any was ever asked to go that was at work."""
        self._problem = ""
        """Why the scale couldn't be read the last time, which is told once; empty: it could."""

    def start(self) -> None:
        """Look from now on."""
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._workload.stopped:
            return
        if self._following is None and (self._retired or self._workload.count_workers() > self._least):
            self._following = self._loop.create_task(self._follow())
        self._loop.call_later(FOLLOW_SECONDS, self._look)

    async def _follow(self) -> None:
        try:
            asked = max(self._least, await asyncio.to_thread(self._scale.read))
        except FrayError as error:
            if (problem := str(error)) != self._problem:
                _log.warning("nobody knows how many workers are asked for, so all stay: %s", problem)
            self._problem = problem
        else:
            self._problem = ""
            self._approach(asked)
        finally:
            self._following = None

    def _approach(self, asked: int) -> None:
        surplus = self._workload.count_workers() - asked
        if surplus < 0:
            # The Job of workers has as many pods as are asked for, those included that end what they have.
            self._workload.recall(-surplus)
        elif surplus := surplus - self._workload.release(surplus):
            self._workload.retire(surplus)
            self._retired = True


class Scaling:
    """Keeps the scale of a job at what its engine has work for, from `start` on; see `keep_scale`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workload: Workload,
        *,
        limits: ScaleLimits,
        most: int,
        scale: ScaleWriter,
    ) -> None:
        self._loop = loop
        self._workload = workload
        self._limits = limits
        self._most = most
        self._scale = scale
        self._demand = Demand()
        self._asked: int | None = None
        """What the job's scale is; None: that isn't known."""
        self._checked = 0
        """How many workers more than asked for there were when that was last so."""
        self._writing: asyncio.Task[None] | None = None
        self._blocked_until = 0.0

    def start(self) -> None:
        """Look from now on."""
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        if self._workload.stopped:
            return
        now = time.monotonic()
        target = self._derive_target(now)
        count = self._workload.count_workers()
        surplus = count - target
        if surplus == 0:
            self._checked = 0
        # Where others have changed the scale, workers that go would be replaced again and again.
        if target != self._asked or surplus != self._checked:
            if self._writing is None and now >= self._blocked_until:
                self._writing = self._loop.create_task(self._write(target, count))
                self._writing.add_done_callback(self._written)
        elif surplus > 0:
            self._workload.release(surplus)
        self._loop.call_later(LOOK_SECONDS, self._look)

    def _derive_target(self, now: float) -> int:
        limits = self._limits
        wanted = self._workload.count_wanted(limits.offered)
        self._demand, target = self._demand.note(wanted, now=now).derive_replicas(
            now=now, idle_seconds=limits.idle_seconds, least=limits.least, most=self._most
        )
        return target

    async def _write(self, target: int, count: int) -> None:
        as_asked = False
        if self._asked is None:
            # What a user began with is as demand of this moment: it isn't taken back at once.
            self._asked = await asyncio.to_thread(self._scale.read)
            now = time.monotonic()
            self._demand = Demand().note(self._asked, now=now)
            target = self._derive_target(now)
            as_asked = target == self._asked
        if not as_asked:
            await asyncio.to_thread(self._scale.write, target)
            self._asked = target
        self._checked = count - target

    def _written(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
        if writing.cancelled():
            return
        error = writing.exception()
        if isinstance(error, FrayError):
            _log.warning("the number of workers can't be changed: %s", error)
            self._blocked_until = time.monotonic() + FAILED_SECONDS
            self._asked = None
        elif error is not None:
            raise error

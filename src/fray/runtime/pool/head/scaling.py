"""The number of a job's workers follows the work there is: up at once, down some time after it has ended.

On the loop of an engine's head, which it never blocks: the job's scale is written by a thread. When it's
lowered, idle workers are asked to go; those at work are never. The order matters: a worker that goes before
the scale is lowered would be replaced.
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
from fray.runtime.pool.messages.events import HostLeaving
from fray.runtime.pool.messages.specs import DRIVER, Shape
from fray.runtime.pool.pod import read_number, read_offer
from fray.vocabulary import (
    ENV_JOB_NAME,
    ENV_JOB_UID,
    ENV_WORKERS_IDLE_SECONDS,
    ENV_WORKERS_MAX,
    ENV_WORKERS_MIN,
)

__all__ = ["JobScale", "PoolWorkload", "ScaleLimits", "ScaleWriter", "Scaling", "Workload", "read_most"]

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""How often it looks how much work there is."""
FAILED_SECONDS: Final = 5.0
"""How long it waits after a scale that couldn't be written."""


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
    """The range of a job's workers, how long one may be idle, and what each offers (empty: not known)."""

    least: int
    most: int
    idle_seconds: float
    offered: Shape = ()

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> ScaleLimits | None:
        """Return what `environ` says; None: the head asks for no workers.

        Raises `SettingError` for what is no number.
        """
        if not environ.get(ENV_WORKERS_MAX):
            return None
        return cls(
            least=int(read_number(environ.get(ENV_WORKERS_MIN) or "0", ENV_WORKERS_MIN)),
            most=int(read_number(environ[ENV_WORKERS_MAX], ENV_WORKERS_MAX)),
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

    def release(self, surplus: int) -> None:
        """Ask up to so many idle workers to go."""


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

    def release(self, surplus: int) -> None:
        """See `Workload`."""
        for host in self.dispatcher.state.list_idle_hosts()[:surplus]:
            self.dispatcher.handle(DRIVER, HostLeaving(host, "there is less work than workers"))
        self.dispatcher.flush()


class Scaling:
    """Keeps the scale of a job at what its engine has work for, from `start` on.

    Parameters: the `loop` of the head and its `workload`; the `limits`; the job's `scale`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workload: Workload,
        *,
        limits: ScaleLimits,
        scale: ScaleWriter,
    ) -> None:
        self._loop = loop
        self._workload = workload
        self._limits = limits
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
            now=now, idle_seconds=limits.idle_seconds, least=limits.least, most=limits.most
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

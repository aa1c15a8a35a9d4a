"""The programs of Dask in pods: `python -m fray.job.dask_pods scheduler | worker`. Variables tell them all.

The scheduler is the head of the attempt's pool, a sidecar of rank 0's pod; elsewhere it waits. A worker's pod
has one worker of Dask, with a nanny that starts its process again. Both are in the job's image, where
`distributed` must be. Connections are mutual TLS by Dask's own configuration, which the pods' variables are.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from fray.errors import AttemptOverError, FrayError, HeadUnknownError, PoolVersionError
from fray.job.dask import IN_PODS, check_installed
from fray.job.engine_pods import Versions, build_refusal, report_end
from fray.kube.errors import ApiError
from fray.payload.stamp import Stamp
from fray.runtime.api.client import ApiAccess
from fray.runtime.identity import Identity
from fray.runtime.pool.head.scaling import JobScale, ScaleLimits, Scaling
from fray.runtime.pool.head_pod import RESTARTED, is_first, stand_by
from fray.runtime.pool.host.readiness import ReadinessServer
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.pod import HeadPlace, PodPool, read_offer
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.worker_pod import DRAIN_SECONDS, HEAD_SECONDS, PATIENCE, build_resources
from fray.vocabulary import (
    ENV_POOL_STATE,
    EXIT_ATTEMPT_OVER,
    EXIT_FAILURE,
    EXIT_USAGE,
    EXIT_WORKER_LOST_HEAD,
    EXIT_WORKER_REFUSED,
    POOL_OBJECT_PORTS,
    POOL_READY_PORT,
)

__all__ = ["main"]

LOOK_SECONDS: Final = 2.0
"""Between two questions of a worker to its scheduler."""
ANSWER_SECONDS: Final = 5.0
LEAVE_SECONDS: Final = 0.2
"""Between two looks of a worker that goes whether its tasks have ended."""
DASHBOARD_PORT: Final = POOL_READY_PORT
"""Of the scheduler; it's one of the pool's, so that only the job's pods reach it."""


class Standing(NamedTuple):
    """What the scheduler knows of a worker: its answer to `fray_stand`."""

    token: str
    """Of this start of the scheduler."""
    refused: str
    """Why the worker can't join; empty: it can."""
    released: bool
    """Whether it has handed over what it held, since there is less work than workers, and is to end."""
    running: int
    """How many tasks it has."""


class Workers:
    """The workers of a scheduler, and how much work there is for them; see `Workload`."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._token = uuid.uuid4().hex
        self._released: set[str] = set()
        """Names of workers that were asked to go; those that the scheduler still has hand over."""
        self._retiring: set[asyncio.Task[None]] = set()
        self.stopped = False
        scheduler.handlers["fray_stand"] = self.stand

    def stand(self, name: str, versions: list[str]) -> list[Any]:
        """Answer a worker; see `Standing`. Lists, since messages have no tuples."""
        refused = build_refusal("distributed", head=_read_versions(), worker=Versions(*versions))
        worker = self._scheduler.workers.get(self._scheduler.aliases.get(name))
        running = 0 if worker is None else len(worker.processing)
        return [self._token, refused, worker is None and name in self._released, running]

    def count_wanted(self, offered: Shape) -> int:
        """See `Workload`: a thread for each task, and a worker for results that are held."""
        tasks = len(self._scheduler.unrunnable) + len(self._scheduler.queued)
        workers = self._scheduler.workers.values()
        tasks += sum(len(worker.processing) for worker in workers)
        threads = max([1, *(worker.nthreads for worker in workers)])
        actors = sum(bool(worker.actors) for worker in workers)
        holding = any(worker.has_what for worker in workers)
        return max(math.ceil(tasks / (dict(offered).get("CPU") or threads)), actors, holding)

    def count_workers(self) -> int:
        """See `Workload`."""
        return sum(worker.name not in self._released for worker in self._scheduler.workers.values())

    def release(self, surplus: int) -> None:
        """See `Workload`: what they hold goes to others first; who finds nobody to take it stays."""
        idle = [
            worker
            for worker in self._scheduler.workers.values()
            if not worker.processing and not worker.actors and worker.name not in self._released
        ]
        if chosen := {worker.name: worker.address for worker in idle[:surplus]}:
            self._released.update(chosen)
            retiring = asyncio.ensure_future(self._retire(chosen))
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)

    async def _retire(self, chosen: Mapping[str, str]) -> None:
        # They close themselves: one that the scheduler closed would be back before it's known to be gone.
        await self._scheduler.retire_workers(workers=list(chosen.values()), close_workers=False, remove=True)
        self._released -= self._scheduler.aliases.keys() & chosen.keys()


class WorkerProgram:
    """A worker of Dask in its pod, from its first try to join until it ends."""

    def __init__(self, pool: PodPool, resources: Mapping[str, float], ready_port: int) -> None:
        self._pool = pool
        self._resources = resources
        # The pod that follows on one has its name, and the scheduler may not know yet that it's gone.
        self._name = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self._token = ""
        self._place: HeadPlace | None = None
        self._leaving = asyncio.Event()
        self._readiness = ReadinessServer(Address(host=pool.objects.host, port=ready_port))

    async def run(self) -> int:
        """Be a worker until SIGTERM, until the scheduler lets it go, or until the attempt is over."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._leaving.set)
        self._readiness.start()
        lost_since = time.monotonic()
        while not self._leaving.is_set():
            try:
                if (code := self._judge(await self._find())) is not None:
                    return code
                if not await self._join():
                    return 0
                lost_since = time.monotonic()
            except AttemptOverError as error:
                return report_end(error, EXIT_ATTEMPT_OVER)
            except (OSError, RuntimeError, HeadUnknownError, ApiError) as error:
                # A nanny that can't start raises RuntimeError.
                patience = HEAD_SECONDS if self._place is None else PATIENCE
                if time.monotonic() - lost_since > patience:
                    return report_end(error, EXIT_WORKER_LOST_HEAD)
            await self._pause(LOOK_SECONDS)
        return 0

    async def _join(self) -> bool:
        """Be a worker of the scheduler for as long as it is there; return whether to come back."""
        from distributed import Nanny  # noqa: PLC0415 - of the job's image

        ports = f"{POOL_OBJECT_PORTS[0]}:{POOL_OBJECT_PORTS[1]}"
        named = {name: amount for name, amount in self._resources.items() if name not in ("CPU", "memory")}
        nanny = Nanny(
            self._address,
            nthreads=max(1, int(self._resources["CPU"])),
            memory_limit=int(self._resources["memory"]),
            resources=named,
            name=self._name,
            host=self._pool.objects.host,
            port=ports,
            worker_port=ports,
            dashboard=False,
            # What it tells by HTTP all the same, only the job's pods may reach.
            dashboard_address=f"{self._pool.objects.host}:{POOL_OBJECT_PORTS[1]}",
        )
        async with nanny:
            self._readiness.ready = True
            try:
                while nanny.status.name in ("running", "starting"):
                    await self._pause(LOOK_SECONDS, unless=nanny.finished)
                    if self._leaving.is_set():
                        self._readiness.ready = False
                        await self._leave(nanny)
                        return False
                    if await self._is_done(nanny):
                        break
            finally:
                self._readiness.ready = False
        return True

    async def _leave(self, nanny: Any) -> None:
        """Take no further tasks, let those that run end in time, and hand over what only lies here."""
        with contextlib.suppress(OSError):
            async with asyncio.timeout(DRAIN_SECONDS):
                address = nanny.worker_address
                await nanny.scheduler.retire_workers(workers=[address], close_workers=False, remove=False)
                while (await self._ask(nanny.scheduler)).running:  # noqa: ASYNC110 - another process knows
                    await asyncio.sleep(LEAVE_SECONDS)
                await nanny.scheduler.retire_workers(workers=[address], close_workers=False, remove=True)

    async def _is_done(self, nanny: Any) -> bool:
        """Return whether the scheduler doesn't want this worker any more.

        One that doesn't answer may be busy: that it's lost, the worker notices itself, and its nanny ends.
        """
        try:
            return self._judge(await self._ask(nanny.scheduler)) is not None
        except OSError:
            return False

    async def _find(self) -> Standing:
        """Find the scheduler, and return what it says of this worker.

        Raises `OSError` where it doesn't answer, and what `PodPool.find_head` raises.
        """
        from distributed.core import rpc  # noqa: PLC0415 - of the job's image
        from distributed.security import Security  # noqa: PLC0415 - of the job's image

        if self._place is None:
            self._place = await asyncio.to_thread(self._pool.find_head, known="", seconds=ANSWER_SECONDS)
        scheduler: Any = rpc(self._address, connection_args=Security().get_connection_args("worker"))
        try:
            return await self._ask(scheduler)
        except OSError as error:
            # Its pod may have ended, which only the API server knows.
            known = self._place.pod
            await asyncio.to_thread(self._pool.find_head, known=known, seconds=ANSWER_SECONDS)
            raise OSError(f"the scheduler at {self._address} doesn't answer: {error}") from error
        finally:
            await scheduler.close_rpc()

    async def _ask(self, scheduler: Any) -> Standing:
        """Return what the scheduler says of this worker; raises `OSError` where it doesn't answer."""
        async with asyncio.timeout(ANSWER_SECONDS):
            return Standing(*await scheduler.fray_stand(name=self._name, versions=[*_read_versions()]))

    def _judge(self, standing: Standing) -> int | None:
        """Return the exit code of a worker that the scheduler doesn't want any more; None: it does."""
        if standing.refused:
            return report_end(PoolVersionError(standing.refused), EXIT_WORKER_REFUSED)
        if self._token not in ("", standing.token):
            return report_end(RESTARTED, EXIT_ATTEMPT_OVER)
        self._token = standing.token
        return 0 if standing.released else None

    @property
    def _address(self) -> str:
        assert self._place is not None
        return f"tls://{self._place.address.authority}"

    async def _pause(self, seconds: float, unless: Callable[[], Awaitable[Any]] | None = None) -> None:
        """Wait so long, or until the worker is to go, or until `unless` has ended."""
        ends = [asyncio.ensure_future(self._leaving.wait())]
        ends += [] if unless is None else [asyncio.ensure_future(unless())]
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for each in ends:
            each.cancel()


def main(arguments: list[str], environ: Mapping[str, str], *, ready_port: int = POOL_READY_PORT) -> int:
    """Be the scheduler of an attempt, or a worker, until SIGTERM or the attempt's end; return the exit code.

    The codes are those of Fray's own head and workers: docs/exit-codes.md.
    """
    if arguments not in (["scheduler"], ["worker"]):
        sys.stderr.write("usage: python -m fray.job.dask_pods scheduler | worker\n")
        return EXIT_USAGE
    try:
        if arguments == ["worker"]:
            check_installed(IN_PODS)
            pool = PodPool.from_env(environ)
            resources = build_resources(dict(read_offer(environ)))
            return asyncio.run(_be_worker(pool, resources, ready_port))
        pool = PodPool.from_env(environ)
        if pool.head is None and Identity.from_env(environ).rank != 0:
            return stand_by()
        check_installed(IN_PODS)
        if not is_first(environ.get(ENV_POOL_STATE, "")):
            return report_end(RESTARTED, EXIT_FAILURE)
        return asyncio.run(_be_scheduler(pool, environ))
    except FrayError as error:
        return report_end(error, EXIT_FAILURE)


async def _be_worker(pool: PodPool, resources: Mapping[str, float], ready_port: int) -> int:
    return await WorkerProgram(pool, resources, ready_port).run()


async def _be_scheduler(pool: PodPool, environ: Mapping[str, str]) -> int:
    from distributed import Scheduler  # noqa: PLC0415 - of the job's image

    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    host, port = pool.listen.host, pool.listen.port
    dashboard = f"{host}:{DASHBOARD_PORT}"
    scheduler = Scheduler(
        protocol="tls", host=host, port=port, dashboard_address=dashboard, idle_timeout=None
    )
    # Before it listens: workers that are there already ask at once.
    workers = Workers(scheduler)
    async with scheduler:
        limits, access = ScaleLimits.from_env(environ), ApiAccess.in_pod(environ)
        if limits is not None and access is not None:
            Scaling(loop, workers, limits=limits, scale=JobScale.from_env(environ, access)).start()
        sys.stdout.write(f"listening on {scheduler.address}\n")
        sys.stdout.flush()
        await ending.wait()
        workers.stopped = True
    return 0


def _read_versions() -> Versions:
    own = Stamp.here()
    return Versions(own.python, version("distributed"), own.fray)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))  # noqa: TID251 - the entry of the process

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
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from fray.errors import AttemptOverError, ContextUnavailableError, FrayError
from fray.job.dask import IN_PODS, check_installed
from fray.job.engine_pods import (
    ANSWER_SECONDS,
    OFFERS,
    Unheld,
    Versions,
    WorkerPod,
    check_versions,
    holds,
    report_end,
    report_missing,
)
from fray.payload.stamp import Stamp
from fray.runtime.api.client import ApiAccess
from fray.runtime.identity import Identity
from fray.runtime.pool.head.scaling import JobScale, ScaleLimits, keep_scale, read_most
from fray.runtime.pool.head_pod import RESTARTED, is_first, stand_by
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.pod import PodPool
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.worker_pod import DRAIN_SECONDS
from fray.vocabulary import ENV_POOL_STATE, EXIT_FAILURE, EXIT_USAGE, POOL_OBJECT_PORTS, POOL_READY_PORT

__all__ = ["main"]

LOOK_SECONDS: Final = 2.0
"""Between two questions of a worker to its scheduler."""
LEAVE_SECONDS: Final = 0.2
"""Between two looks of a worker that goes whether its tasks have ended."""
DASHBOARD_PORT: Final = POOL_READY_PORT
"""Of the scheduler; it's one of the pool's, so that only the job's pods reach it."""


class Standing(NamedTuple):
    """What the scheduler knows of a worker: its answer to `fray_stand`."""

    token: str
    """Of this start of the scheduler."""
    versions: Versions
    """The scheduler's own."""
    released: bool
    """Whether it has handed over what it held, since there are more workers than wanted, and is to end."""


class Workers:
    """The workers of a scheduler, and how much work there is for them; see `Workload`."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._token = uuid.uuid4().hex
        self._released: set[str] = set()
        """Names of workers that were asked to go; those that the scheduler still has hand over."""
        self._retiring: set[asyncio.Task[None]] = set()
        self._ending: dict[str, asyncio.Task[None]] = {}
        """By name, those that end what they run before they go, and may be recalled."""
        self._unheld = Unheld()
        self.stopped = False
        scheduler.handlers["fray_stand"] = self.stand

    def stand(self, name: str) -> list[Any]:
        """Answer a worker; see `Standing`. Lists, since messages have no tuples."""
        gone = name not in self._scheduler.aliases
        return [self._token, [*_read_versions()], gone and name in self._released]

    def count_wanted(self, offered: Shape) -> int:
        """See `Workload`: a thread for each task, and a worker for results that are held.

        Tasks count for nothing whose resources no worker can ever hold.
        """
        unheld = self.find_unheld(offered)
        self._unheld.tell(unheld, tuple(_resources_of(dict(offered)).items()))
        tasks = len(self._scheduler.unrunnable) + len(self._scheduler.queued) - unheld.total()
        workers = self._scheduler.workers.values()
        tasks += sum(len(worker.processing) for worker in workers)
        threads = max([1, *(worker.nthreads for worker in workers)])
        actors = sum(bool(worker.actors) for worker in workers)
        holding = any(worker.has_what for worker in workers)
        return max(math.ceil(tasks / (dict(offered).get("CPU") or threads)), actors, holding)

    def find_unheld(self, offered: Shape) -> Counter[Shape]:
        """Return what resources wait that no worker can ever hold, with counts; see `Workload`."""
        offers = [worker.resources for worker in self._scheduler.workers.values()]
        offers.append(_resources_of(dict(offered)))
        asked = (task.resource_restrictions or {} for task in self._scheduler.unrunnable)
        never = (each for each in asked if not any(holds(offer, each) for offer in offers))
        return Counter(tuple(sorted(each.items())) for each in never if offered)

    def count_workers(self) -> int:
        """See `Workload`."""
        return sum(worker.name not in self._released for worker in self._scheduler.workers.values())

    def release(self, surplus: int) -> int:
        """See `Workload`: what they hold goes to others first; who finds nobody to take it stays."""
        idle = [worker for worker in self._list_free() if not worker.processing][:surplus]
        if idle:
            self._begin(self._dismiss(idle), idle)
        return len(idle)

    def retire(self, surplus: int) -> None:
        """See `Workload`; who finds nobody to take what it holds stays too."""
        busy = [worker for worker in self._list_free() if worker.processing]
        for worker in sorted(busy, key=lambda worker: len(worker.processing))[:surplus]:
            self._begin(self._end(worker), [worker])

    def recall(self, missing: int) -> None:
        """See `Workload`."""
        from distributed.active_memory_manager import RetireWorker  # noqa: PLC0415 - of the job's image

        for name in list(self._ending)[:missing]:
            self._ending.pop(name).cancel()
            if (worker := self._scheduler.workers.get(self._scheduler.aliases.get(name))) is None:
                continue
            policies = self._scheduler.extensions["amm"].policies
            for policy in [each for each in policies if isinstance(each, RetireWorker)]:
                if policy.address == worker.address:
                    policies.remove(policy)
            # As Dask does with one that nobody can take the results of.
            changed = {"status": "running", "stimulus_id": f"fray-recall-{time.time()}"}
            self._scheduler.stream_comms[worker.address].send({"op": "worker-status-change", **changed})
            self._scheduler.handle_worker_status_change(worker=worker, **changed)

    def _list_free(self) -> list[Any]:
        """Return the workers that have no actor and weren't asked to go yet."""
        workers = self._scheduler.workers.values()
        return [worker for worker in workers if not worker.actors and worker.name not in self._released]

    def _begin(self, going: Coroutine[Any, Any, None], workers: Sequence[Any]) -> None:
        self._released.update(worker.name for worker in workers)
        retiring = asyncio.ensure_future(going)
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)

    async def _end(self, worker: Any) -> None:
        """Let a worker end what it runs, and go, unless it is recalled before."""
        name, address = worker.name, worker.address
        kept = await self._scheduler.retire_workers(workers=[address], close_workers=False, remove=False)
        if address in kept:
            self._ending[name] = asyncio.ensure_future(_await_idle(address))
            await asyncio.wait([self._ending[name]])
            if self._ending.pop(name, None) is not None:
                await self._dismiss([worker])
                return
        self._released.discard(name)

    async def _dismiss(self, workers: Sequence[Any]) -> None:
        """Let workers hand over what they hold, together: what one hands over goes to none of the others."""
        # They close themselves: one that the scheduler closed would be back before it's known to be gone.
        addresses = [worker.address for worker in workers]
        await self._scheduler.retire_workers(workers=addresses, close_workers=False, remove=True)
        self._released -= self._scheduler.aliases.keys() & {worker.name for worker in workers}


class Joining:
    """How a worker of Dask joins, try after try."""

    def __init__(self) -> None:
        # The pod that follows on one has its name, and the scheduler may not know yet that it's gone.
        self._name = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        self._token = ""

    def join(self, pod: WorkerPod, scheduler: Address) -> bool:
        """See `Join`."""
        return asyncio.run(self._be_worker(pod, f"tls://{scheduler.authority}"))

    async def _be_worker(self, pod: WorkerPod, address: str) -> bool:
        from distributed import Nanny  # noqa: PLC0415 - of the job's image

        if await self._is_refused(address):
            return False
        ports = f"{POOL_OBJECT_PORTS[0]}:{POOL_OBJECT_PORTS[1]}"
        nanny = Nanny(
            address,
            nthreads=max(1, int(pod.resources["CPU"])),
            memory_limit=int(pod.resources["memory"]),
            resources=_resources_of(pod.resources),
            name=self._name,
            host=pod.pool.objects.host,
            port=ports,
            worker_port=ports,
            dashboard=False,
            # What it tells by HTTP all the same, only the job's pods may reach.
            dashboard_address=f"{pod.pool.objects.host}:{POOL_OBJECT_PORTS[1]}",
        )
        async with nanny:
            with pod.joined():
                finished = asyncio.ensure_future(nanny.finished())
                while nanny.status.name in ("running", "starting") and not pod.leaving.is_set():
                    leaving = asyncio.ensure_future(asyncio.to_thread(pod.leaving.wait, LOOK_SECONDS))
                    await asyncio.wait((finished, leaving), return_when=asyncio.FIRST_COMPLETED)
                    if await self._is_done(nanny):
                        break
            if pod.leaving.is_set():
                await self._leave(nanny)
        return not pod.leaving.is_set()

    async def _leave(self, nanny: Any) -> None:
        """Take no further tasks, let those that run end in time, and hand over what only lies here."""
        with contextlib.suppress(OSError):
            async with asyncio.timeout(DRAIN_SECONDS):
                address = nanny.worker_address
                await nanny.scheduler.retire_workers(workers=[address], close_workers=False, remove=False)
                await _await_idle(address)
                await nanny.scheduler.retire_workers(workers=[address], close_workers=False, remove=True)

    async def _is_refused(self, address: str) -> bool:
        """Return whether the scheduler doesn't want this worker any more; see `Join` for what it raises."""
        async with _connect(address) as scheduler:
            standing = await self._ask(scheduler)
        check_versions("distributed", head=standing.versions, worker=_read_versions())
        if self._token not in ("", standing.token):
            raise AttemptOverError(RESTARTED)
        self._token = standing.token
        return standing.released

    async def _is_done(self, nanny: Any) -> bool:
        """Return whether the scheduler doesn't want this worker any more.

        One that doesn't answer may be busy: that it's lost, the worker notices itself, and its nanny ends.
        """
        try:
            standing = await self._ask(nanny.scheduler)
        except OSError:
            return False
        return standing.released or standing.token != self._token

    async def _ask(self, scheduler: Any) -> Standing:
        """Return what the scheduler says of this worker; raises `OSError` where it doesn't answer."""
        async with asyncio.timeout(ANSWER_SECONDS):
            token, versions, released = await scheduler.fray_stand(name=self._name)
        return Standing(token, Versions(*versions), released)


@contextlib.asynccontextmanager
async def _connect(address: str) -> AsyncIterator[Any]:
    """Give a connection to a scheduler or worker; what is asked raises `OSError` where it doesn't answer."""
    from distributed.core import rpc  # noqa: PLC0415 - of the job's image
    from distributed.security import Security  # noqa: PLC0415 - of the job's image

    connection: Any = rpc(address, connection_args=Security().get_connection_args("worker"))
    try:
        yield connection
    finally:
        await connection.close_rpc()


async def _await_idle(address: str) -> None:
    """Return once a worker that retires runs no task, or is gone; what it hasn't begun runs elsewhere."""
    from distributed.protocol.pickle import dumps  # noqa: PLC0415 - of the job's image

    asked = dumps(is_at_work)
    with contextlib.suppress(OSError):
        async with _connect(address) as worker:
            pause = LEAVE_SECONDS
            while (await worker.run(function=asked))["result"]:  # another process knows
                await asyncio.sleep(pause)
                pause = min(2 * pause, LOOK_SECONDS)


def is_at_work(dask_worker: Any) -> bool:
    """Return whether a worker runs a task, or may still begin one; Dask calls it in the worker's process."""
    state = dask_worker.state
    return bool(state.running or state.executing or state.long_running)


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
            # A nanny that can't start raises RuntimeError.
            return WorkerPod(environ, ready_port=ready_port).run(Joining().join, faults=(RuntimeError,))
        pool = PodPool.from_env(environ)
        if pool.head is None and Identity.from_env(environ).rank != 0:
            return stand_by()
        check_installed(IN_PODS)
        if not is_first(environ.get(ENV_POOL_STATE, "")):
            return report_end(RESTARTED, EXIT_FAILURE)
        return asyncio.run(_be_scheduler(pool, environ))
    except ContextUnavailableError as error:
        return report_missing(error)
    except FrayError as error:
        return report_end(error, EXIT_FAILURE)


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
    offered = dict(read_most(environ))
    async with scheduler:
        # Its start clears what was set before; nobody is answered until then.
        scheduler.set_metadata(keys=[OFFERS], value=[_resources_of(offered)] if offered else [])
        limits, access = ScaleLimits.from_env(environ), ApiAccess.in_pod(environ)
        if limits is not None and access is not None:
            keep_scale(loop, workers, limits=limits, scale=JobScale.from_env(environ, access))
        sys.stdout.write(f"listening on {scheduler.address}\n")
        sys.stdout.flush()
        await ending.wait()
        workers.stopped = True
    return 0


def _resources_of(offered: Mapping[str, float]) -> dict[str, float]:
    """Return what a worker's resources are called in Dask, which counts threads and memory by themselves."""
    return {name: amount for name, amount in offered.items() if name not in ("CPU", "memory")}


def _read_versions() -> Versions:
    own = Stamp.here()
    return Versions(own.python, version("distributed"), own.fray)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))  # noqa: TID251 - the entry of the process

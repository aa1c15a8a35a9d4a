"""Requests to a running host of a job, through the API server: a command, and what shows its pool."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from fray.cluster.answers import Dashboard
from fray.cluster.arguments import LogChoice
from fray.cluster.command_streams import CommandStreams
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import Sleep, persistently
from fray.cluster.kubernetes.local_port import PortForward
from fray.cluster.kubernetes.pod_log import read_state
from fray.cluster.kubernetes.results import group_by_rank, list_pods, read_job
from fray.cluster.kubernetes.session import Session
from fray.errors import CommandNotRunError, HostNotRunningError, PoolNotShownError
from fray.kube.api import Manifest
from fray.kube.errors import NotFoundError, RefusedError, ServerError, UnreachableError
from fray.kube.pod_streams import Channel, RemoteCommand
from fray.plan.environment import RAY_TOKEN_FILE
from fray.plan.status import is_finished
from fray.plan.workers import has_workers
from fray.types import JobId
from fray.vocabulary import (
    CONTAINER,
    POOL_METRICS_PORT,
    POOL_READY_PORT,
    POOL_VIEW_PATH,
    RAY_DASHBOARD_PORT,
)
from fray.wire.frayjob import FrayJob, FrayJobSpec

if TYPE_CHECKING:
    from fray.runtime.pool.view import PoolView

__all__ = ["DASHBOARD_PORTS", "choose_pod", "find_dashboard", "open_dashboard", "read_pool", "run_command"]

DASHBOARD_PORTS: Final[Mapping[str, int]] = MappingProxyType(
    {"dask": POOL_READY_PORT, "ray": RAY_DASHBOARD_PORT}
)
"""By the engine, in rank 0's pod."""


async def run_command(
    access: Access, job_id: JobId, command: Sequence[str], *, rank: int, streams: CommandStreams
) -> int:
    """Run a command in the running host of a rank, and return its exit code.

    Raises what `fray.cluster.base.Cluster.run_command` raises, and `ApiError`.
    """
    job = await read_job(access, job_id)
    LogChoice(rank=rank).find_ranks(job, ())
    pod = choose_pod(job, await list_pods(access, job), rank)
    try:
        async with access.api.run_command(
            pod, namespace=access.namespace, container=CONTAINER, command=command, tty=streams.is_terminal
        ) as running:
            await _carry(running, streams)
            return running.exit_code
    except NotFoundError as gone:
        raise HostNotRunningError(job_id, rank, "its pod is gone") from gone
    except (RefusedError, ServerError) as refused:
        raise CommandNotRunError(job_id, rank, command[0], refused.detail) from refused


def choose_pod(job: FrayJob, pods: Sequence[Manifest], rank: int) -> str:
    """Return the name of the pod that runs a rank of the latest attempt; raises `HostNotRunningError`."""
    name = job.metadata.name
    if is_finished(job.status):
        raise HostNotRunningError(name, rank, f"the job has ended ({job.status.phase})")
    if not job.status.attempts:
        raise HostNotRunningError(name, rank, "no attempt has begun")
    latest = job.status.attempts[-1].number
    found = group_by_rank(job, pods, latest).get(rank, [])
    running = [pod for pod in found if "running" in read_state(pod)]
    if running:
        return str(running[0]["metadata"]["name"])
    problem = _describe(found[0]) if found else f"it has no pod in attempt {latest} yet"
    raise HostNotRunningError(name, rank, problem)


def _describe(pod: Manifest) -> str:
    state, phase = read_state(pod), pod.get("status", {}).get("phase", "Pending")
    if (ended := state.get("terminated")) is not None:
        return f"it has ended with exit code {ended.get('exitCode')}"
    reason = (state.get("waiting") or {}).get("reason")
    return f"its pod is {phase}" + (f" ({reason})" if reason else "")


async def _carry(running: RemoteCommand, streams: CommandStreams) -> None:
    """Move bytes between a command and its streams, until the command has ended."""
    loop = asyncio.get_running_loop()

    def run(coroutine: Coroutine[Any, Any, None]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    if streams.is_terminal:
        # What becomes of it is nobody's matter: a size that comes after the end is none.
        streams.watch_size(lambda columns, lines: run(running.resize(columns, lines)))
    # A daemon, and never joined: nothing ends a read of standard input.
    threading.Thread(target=_pump, args=(running, streams.read, run), name="fray-stdin", daemon=True).start()
    async for channel, data in running:
        write = streams.write_error if channel is Channel.ERRORS else streams.write
        await asyncio.to_thread(write, data)  # which may wait for a slow reader


def _pump(
    running: RemoteCommand, read: Callable[[], bytes], run: Callable[[Coroutine[Any, Any, None]], Any]
) -> None:
    """Send standard input, piece after piece, until its end or that of the command."""
    data = b"-"
    while data:
        try:
            data = read()
        except OSError:
            data = b""  # a terminal that is gone
        sending = running.send(data) if data else running.end_input()
        try:
            run(sending).result()
        except (ConnectionError, CancelledError):
            return  # the command has ended
        except RuntimeError:
            sending.close()  # its loop has ended, too
            return


async def read_pool(access: Access, job_id: JobId, *, sleep: Sleep = asyncio.sleep) -> PoolView:
    """Return what the pool of a job has and does now; needs the verb `get` on `pods/proxy`.

    Raises what `fray.cluster.base.Cluster.read_pool` raises, and `ApiError`.
    """
    from fray.runtime.pool.view import PoolView  # noqa: PLC0415 - loads what few ask for

    job = await read_job(access, job_id)
    if problem := _find_problem(job.spec):
        raise PoolNotShownError(job_id, problem)
    pod = choose_pod(job, await list_pods(access, job), 0)

    async def read() -> bytes:
        return await access.api.read_page(
            pod, namespace=access.namespace, port=POOL_METRICS_PORT, path=POOL_VIEW_PATH
        )

    try:
        return PoolView.from_json(await persistently(read, sleep=sleep))
    except (NotFoundError, ServerError, UnreachableError) as error:
        if not error.status:
            raise  # the API server is silent, and not the pod
        raise PoolNotShownError(job_id, f"its head doesn't answer: {error.detail}") from error
    except ValueError as error:
        raise PoolNotShownError(job_id, f"its head answers something else: {error}") from error


def _find_problem(spec: FrayJobSpec) -> str:
    if not has_workers(spec):
        return "it names no workers"
    if spec.workers.engine != "fray":
        return f"its engine is {spec.workers.engine}, which has a dashboard of its own"
    return ""


def open_dashboard(session: Session, job_id: JobId) -> Dashboard:
    """Return the dashboard of a job's engine; needs the verbs `get` and `create` on `pods/portforward`.

    Raises what `fray.cluster.base.Cluster.open_dashboard` raises, and `ApiError`.
    """
    engine, pod = session.ask(lambda access: find_dashboard(access, job_id))
    forward = PortForward(session, pod, DASHBOARD_PORTS[engine])
    token = f"It asks for the job's token: fray exec {job_id} -- cat {RAY_TOKEN_FILE}"
    return Dashboard(
        url=f"http://{forward.address.authority}",
        hint=token if engine == "ray" else "",
        find_problem=lambda: forward.problem,
        close=forward.close,
    )


async def find_dashboard(access: Access, job_id: JobId) -> tuple[str, str]:
    """Return the engine of a running job, and the pod of its rank 0; raises what `open_dashboard` raises."""
    job = await read_job(access, job_id)
    if not has_workers(job.spec):
        raise PoolNotShownError(job_id, "it names no workers")
    engine = job.spec.workers.engine
    if engine not in DASHBOARD_PORTS:
        problem = f"engine {engine} has no dashboard: `fray top {job_id}` shows its pool"
        raise PoolNotShownError(job_id, problem)
    return engine, choose_pod(job, await list_pods(access, job), 0)

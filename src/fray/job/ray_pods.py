"""The programs of Ray in pods: `python -m fray.job.ray_pods host COMMAND... | worker | demand`.

`host` stands before the main program of each rank. It starts Ray's head in rank 0, and a raylet without CPUs
in other ranks, since a driver needs a raylet beside it; then the program takes its place. `worker` runs a
raylet with all that a worker's pod has. `demand` is a sidecar of rank 0's pod that asks for workers,
or lets those go that users want no more; elsewhere it waits. They read the rest from variables.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any, Final

from fray.errors import AttemptOverError, ContextUnavailableError, FrayError
from fray.job.engine_pods import WorkerPod, check_versions, report_end, report_missing
from fray.job.ray import IN_PODS, check_installed
from fray.job.ray_demand import ask_for_workers
from fray.job.ray_node import (
    LOOK_SECONDS,
    NodeProcess,
    answers,
    build_token,
    connect,
    read_head_versions,
    read_versions,
    was_released,
    write_head_versions,
    write_offer,
    write_token,
)
from fray.job.ray_start import try_to_start
from fray.runtime.api.client import ApiAccess
from fray.runtime.identity import Identity
from fray.runtime.pool.head.scaling import JobScale, ScaleLimits, read_most
from fray.runtime.pool.head_pod import stand_by
from fray.runtime.pool.pod import PodPool
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.worker_pod import HEAD_SECONDS
from fray.runtime.preparation import become
from fray.vocabulary import (
    ENV_JOB_UID,
    ENV_RAY_ADDRESS,
    ENV_RAY_TOKEN_PATH,
    EXIT_FAILURE,
    EXIT_USAGE,
    POOL_READY_PORT,
    PRIVATE_KEY_FILE,
)

__all__ = ["main"]

ASK_SECONDS: Final = 3.0
"""Between two looks of a worker whether the head is there."""


def main(
    arguments: list[str], environ: MutableMapping[str, str], *, ready_port: int = POOL_READY_PORT
) -> int:
    """Be what the first argument names; return the exit code, as Fray's own workers do: docs/exit-codes.md.

    `host` returns only where the command can't take its place. It adds where Ray is to `environ`.
    """
    role, *command = arguments or [""]
    if role not in ("host", "worker", "demand") or bool(command) != (role == "host"):
        sys.stderr.write("usage: python -m fray.job.ray_pods host COMMAND... | worker | demand\n")
        return EXIT_USAGE
    try:
        if role == "demand" and Identity.from_env(environ).rank != 0:
            return stand_by()
        check_installed(IN_PODS)
        from ray.exceptions import RayError  # noqa: PLC0415 - of the job's image

        pool = PodPool.from_env(environ)
        key = (pool.key / PRIVATE_KEY_FILE).read_bytes()
        write_token(build_token(key, environ[ENV_JOB_UID]), Path(environ[ENV_RAY_TOKEN_PATH]))
        if role == "host":
            return _be_host(pool, environ, command)
        if role == "demand":
            return _be_demand(pool, environ)
        return WorkerPod(environ, ready_port=ready_port).run(join, faults=(RayError,))
    except ContextUnavailableError as error:
        return report_missing(error)
    except (FrayError, OSError) as error:
        return report_end(error, EXIT_FAILURE)


def _be_host(pool: PodPool, environ: MutableMapping[str, str], command: Sequence[str]) -> int:
    """Start what a rank has of Ray, and become its program; return the exit code where that can't be.

    Ray's processes run beside the program, and end with the container.
    """
    host = pool.objects.host
    first = Identity.from_env(environ).rank == 0
    head = Address(host=host, port=pool.port) if first else _await_head(pool)
    gcs = try_to_start(lambda: _start_host(host, head))
    if first:
        write_head_versions(gcs)
    environ[ENV_RAY_ADDRESS] = head.authority
    return become(command)


def _start_host(host: str, head: Address) -> Any:
    """Start what a rank has of Ray; return the head's client. Raises `OSError` where Ray gives up."""
    node = NodeProcess(host, head, {"CPU": 0, "TPU": 0}, role="host")
    try:
        return node.wait(threading.Event())
    except OSError:
        node.end()
        raise


def _await_head(pool: PodPool) -> Address:
    """Return where the head is once it answers; raises what `PodPool.find_head` raises."""
    deadline = time.monotonic() + HEAD_SECONDS
    while True:
        head = pool.find_head(seconds=max(0.0, deadline - time.monotonic())).address
        if answers(head):
            return head
        time.sleep(LOOK_SECONDS)


def _be_demand(pool: PodPool, environ: MutableMapping[str, str]) -> int:
    """Ask for workers until SIGTERM, in rank 0; return the exit code."""
    limits, access = ScaleLimits.from_env(environ), ApiAccess.in_pod(environ)
    if limits is None or access is None:
        problem = "nobody can ask for workers: this pod has no token for the API server"
        return report_end(problem, EXIT_FAILURE)
    head = Address(host=pool.objects.host, port=pool.port)
    asyncio.run(ask_for_workers(head, limits, JobScale.from_env(environ, access)))
    return 0


def join(pod: WorkerPod, head: Address) -> bool:
    """See `fray.job.engine_pods.Join`: be a node of Ray's head."""
    check_versions("ray", head=read_head_versions(connect(head)), worker=read_versions())
    node = NodeProcess(pod.pool.objects.host, head, pod.resources, role="worker")
    try:
        gcs = node.wait(pod.leaving)
        if gcs is None:
            return False
        write_offer(gcs, read_most(pod.pool.environ))
        with pod.joined():
            asked = time.monotonic()
            while node.runs:
                if pod.leaving.wait(LOOK_SECONDS):
                    return False
                if time.monotonic() - asked > ASK_SECONDS:
                    asked = time.monotonic()
                    if not answers(head):
                        pod.find_head()
                    elif node.is_draining(gcs):
                        return False
        return not was_released(node.find(gcs))
    except AttemptOverError:
        node.kill()
        raise
    finally:
        node.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))  # noqa: TID251 - the entry of the process

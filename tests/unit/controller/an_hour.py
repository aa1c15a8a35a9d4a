"""FrayJobs in a server in memory, worked on for an hour of virtual time by the operator's own parts.

The caches hold what the operator itself wrote or read, since nothing is watched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from fray.kube.api import Manifest
from fray.kube.resources import FRAYJOBS, JOBS, JOBSETS, PODS
from fray.plan.settings import PlanSettings, RetryPolicy
from fray.testing.memory import MemoryApi, MemoryServer
from fray.vocabulary import Role
from fray_operator.act import Actor
from fray_operator.frayjobs import FRAYJOB
from fray_operator.informer import Informer
from fray_operator.kinds import Controller, Key
from fray_operator.lease import Lease
from fray_operator.list_watch import place_of
from fray_operator.metrics import Metrics
from fray_operator.nodes import NodeInformer
from fray_operator.observe import Observer
from fray_operator.queue import WorkQueue
from fray_operator.reconcile import Reconciler
from fray_operator.store import Store
from fray_operator.worker import work
from fray_operator.writer import Writer
from tests.unit.controller.virtual_time import run
from tests.unit.controller.watched_life import LabelledPods, remember_in

__all__ = ["LONG_AGO", "Check", "frayjob", "passes", "reconcile_for_an_hour"]

Check = Callable[[MemoryServer, Metrics, WorkQueue[Key]], None]

LONG_AGO = "2026-01-31T11:00:00.000Z"
POLICY = RetryPolicy(10, 360)


def frayjob(name: str, *, spec: dict[str, Any] | None = None, **attempt: Any) -> Manifest:
    begun = {"number": 1, "jobSet": f"{name}-a1", "startTime": LONG_AGO, **attempt}
    return {
        "apiVersion": "fray.dev/v1alpha1",
        "kind": "FrayJob",
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {"entrypoint": {"command": ["train"]}, **(spec or {})},
        "status": {"attempts": [begun]} if attempt else {},
    }


def reconcile_for_an_hour(
    bodies: list[Manifest],
    check: Check,
    *,
    prepare: Callable[[MemoryServer, Informer, Informer], None] = lambda _server, _jobsets, _pods: None,
    read_nodes: bool = False,
    policy: RetryPolicy = POLICY,
) -> None:
    """Work on these FrayJobs, then check what was done.

    `prepare` may add to the server and to the caches of JobSets and pods before.
    """

    async def main() -> None:
        server, jobs, metrics = MemoryServer(), Store(), Metrics()
        api, queue = MemoryApi(server), WorkQueue[Key]()
        lease = Lease(api, namespace="default", name="leader", identity="a", seconds=36_000)
        await lease.acquire()
        jobsets, workers, pods = (
            kept(
                api,
                resource,
                FRAYJOB,
                namespace=None,
                on_change=lambda job: queue.add(FRAYJOB.key(job)),
                trim=lambda body: body,
            )
            for kept, resource in ((Informer, JOBSETS), (Informer, JOBS), (LabelledPods, PODS))
        )
        observer = Observer(
            api,
            children={Role.HOST: lambda _: jobsets, Role.WORKER: lambda _: workers},
            pods=lambda _: pods,
            nodes=NodeInformer(api) if read_nodes else None,
            policy=policy,
        )
        actor = Actor(
            api,
            lease,
            settings=PlanSettings(),
            remember=remember_in({Role.HOST: jobsets, Role.WORKER: workers}),
        )
        loop, start = asyncio.get_running_loop(), datetime.now(UTC)
        reconciler = Reconciler(
            FRAYJOB,
            jobs,
            observer,
            actor,
            Writer(api, lease, FRAYJOB, identity="a"),
            metrics,
            policy=policy,
            clock=lambda: start + timedelta(seconds=loop.time()),
        )
        controller = Controller(FRAYJOB, jobs, reconciler.reconcile)
        for body in bodies:
            stored = server.store(FRAYJOBS, body)
            jobs.put(stored)
            queue.add(FRAYJOB.key(place_of(stored)))
        prepare(server, jobsets, pods)
        for body in server.all(JOBS):
            workers.remember(body)
        server.calls.clear()
        task = asyncio.create_task(work(queue, {FRAYJOB.name: controller}, metrics))
        await asyncio.sleep(3600)
        assert not task.done()
        check(server, metrics, queue)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())


def passes(metrics: Metrics, outcome: str) -> float:
    return (
        metrics.registry.get_sample_value("fray_reconciles_total", {"kind": "FrayJob", "outcome": outcome})
        or 0.0
    )

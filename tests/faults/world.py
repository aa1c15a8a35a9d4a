"""Those who do things to jobs: their users, their programs, and those that take hosts away.

What is done follows the plans, and what there is in the cluster; how far the operator is, is looked at only
where an act would mean something else otherwise.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from e2e.chaos.oracle import is_finished
from fray.kube.api import Manifest, Propagation
from fray.kube.resources import FRAYJOBS, JOBSETS, PODS, Resource
from fray.testing.memory import MemoryServer
from fray.vocabulary import API_VERSION, FRAYJOB_KIND, LABEL_ATTEMPT, LABEL_JOB, LABEL_JOBSET_NAME
from tests.faults.controllers import Controllers
from tests.faults.invariants import is_current
from tests.faults.scenario import Act, Kind, Plan

__all__ = ["World"]

NAMESPACE = "default"
PROPAGATIONS: tuple[Propagation, ...] = ("Foreground", "Background")
LOOK_SECONDS = 0.5
AWAY_SECONDS = 300.0
"""An attempt that runs, or is over, for longer unseen may be over its limit (400 s) once it is seen."""
PEERS_SECONDS = 2.0
"""After how long the peers of a host that crashed do so too: times in pods have whole seconds."""
CRASHES = (
    Kind.CRASH,
    Kind.CRASH_ALL,
    Kind.CRASH_AND_STOP,
    Kind.CRASH_THEN_STOP,
    Kind.CRASH_THEN_DELETE,
    Kind.CRASH_THEN_SUSPEND,
)


class World:
    """Carries out plans; `story` is what was done, with the moment in seconds."""

    def __init__(
        self, server: MemoryServer, controllers: Controllers, plans: Sequence[Plan], rng: random.Random
    ) -> None:
        self._server, self._controllers, self._rng = server, controllers, rng
        self._plans = {plan.name: plan for plan in plans}
        self._loop = asyncio.get_running_loop()
        self._begun: set[tuple[str, int]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.story: list[str] = []
        self.submitted: set[str] = set()
        self.interrupted: set[tuple[str, int]] = set()
        """Jobs and attempts after which the user was in time to do something before the next one."""
        self.outlasted: set[tuple[str, int]] = set()
        """Jobs and attempts that may have run longer than they may, as far as the operator could know."""
        server.listeners.append(self._on_change)
        for plan in plans:
            self._start(self._live(plan))

    @property
    def over(self) -> bool:
        """Whether each job has ended, or was deleted."""
        return len(self.submitted) == len(self._plans) and all(
            is_finished(job.get("status", {})) for job in self._server.look(FRAYJOBS)
        )

    async def end(self) -> None:
        """Stop doing things; raises the error of an act that failed."""
        for task in self._tasks:
            task.cancel()
        for failure in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(failure, Exception):
                raise failure

    # --- the user ---------------------------------------------------------------------------------------

    async def _live(self, plan: Plan) -> None:
        await asyncio.sleep(plan.created_at)
        body = {"apiVersion": API_VERSION, "kind": FRAYJOB_KIND, "spec": dict(plan.spec)}
        metadata = {"name": plan.name, "namespace": NAMESPACE}
        self._server.create(FRAYJOBS, {**body, "metadata": metadata}, NAMESPACE)
        self._tell(plan, "created")
        self.submitted.add(plan.name)
        first = plan.act(1)
        if first.kind in (Kind.STOP_EARLY, Kind.DELETE_EARLY):
            await asyncio.sleep(first.delay)
            self._finish(plan, first)
        if plan.resumed_at is not None:
            await asyncio.sleep(plan.resumed_at)
            self._edit(plan, suspend=False)

    def _edit(self, plan: Plan, **changes: bool) -> None:
        job = self._server.find(FRAYJOBS, plan.name)
        if job is not None:
            job["spec"] |= changes
            self._server.replace(FRAYJOBS, job, "")
            self._tell(plan, f"edited: {changes}")

    def _finish(self, plan: Plan, act: Act) -> None:
        if "DELETE" in act.kind.name:
            self._server.delete(FRAYJOBS, plan.name, NAMESPACE, uid=None, propagation="Background")
            self._tell(plan, "deleted")
        else:
            self._edit(plan, stopped=True)

    async def _suspend_for_a_while(self, plan: Plan) -> None:
        self._edit(plan, suspend=True)
        await self._until(lambda: self._status(plan).get("phase") == "Suspended")
        await asyncio.sleep(self._rng.uniform(0.0, 20.0))
        self._edit(plan, suspend=False)

    # --- programs and hosts -----------------------------------------------------------------------------

    def _on_change(self, resource: Resource, old: Manifest | None, new: Manifest | None) -> None:
        if new is None or resource not in (JOBSETS, PODS):
            return
        labels, name = new["metadata"]["labels"], new["metadata"]["name"]
        plan, attempt = self._plans[labels[LABEL_JOB]], int(labels[LABEL_ATTEMPT])
        if resource == JOBSETS:
            if old is None and plan.act(attempt).kind is Kind.NEVER_PLACED:
                self._controllers.never_scheduled.add(name)
            return
        if new["status"]["phase"] == "Running" and self._all_run(plan, labels[LABEL_JOBSET_NAME]):
            jobset = self._server.find(JOBSETS, labels[LABEL_JOBSET_NAME])
            # What runs after its attempt's end does so until somebody ends it.
            if jobset is None or (plan.name, attempt) in self._begun or not is_current(self._server, new):
                return
            self._begun.add((plan.name, attempt))
            self._start(self._act(plan, attempt, jobset))

    def _all_run(self, plan: Plan, jobset: str) -> bool:
        pods = self._server.look(PODS, label=(LABEL_JOBSET_NAME, jobset))
        return sum(pod["status"]["phase"] == "Running" for pod in pods) == plan.hosts

    async def _act(self, plan: Plan, attempt: int, jobset: Manifest) -> None:
        act, name = plan.act(attempt), jobset["metadata"]["name"]
        await asyncio.sleep(act.delay)
        pods = [pod["metadata"]["name"] for pod in self._controllers.pods_of(jobset)]
        self._tell(plan, f"attempt {attempt}: {act}")
        match act.kind:
            case Kind.SUCCEED | Kind.SUCCEED_AND_STOP:
                await self._stop_about_now(plan, act)
                for pod in pods:
                    self._loop.call_later(self._rng.uniform(0.0, 3.0), self._controllers.exit, pod, 0)
            case Kind.DELETE_JOBSET:
                await self._until_seen(plan, attempt, "runningTime")
                propagation = self._rng.choice(PROPAGATIONS)
                self._server.delete(JOBSETS, name, NAMESPACE, uid=None, propagation=propagation)
                await self._until_seen(plan, attempt, "reason")
            case Kind.SUSPEND_JOBSET:
                await self._until_seen(plan, attempt, "runningTime")
                await asyncio.sleep(act.delay)
                self._suspend_jobset(name)
                await self._until_seen(plan, attempt, "reason")
            case Kind.SUSPEND:
                self._start(self._until_seen(plan, attempt, "reason"))
                await self._suspend_for_a_while(plan)
            case Kind.STOP | Kind.DELETE:
                self._finish(plan, act)
                await self._until_seen(plan, attempt, "reason")
            case kind if kind in CRASHES:
                await self._crash(plan, attempt, act, pods)
            case _ if len(pods) == plan.hosts:  # they may be gone: its user has stopped or deleted the job
                self._hurt(act, pods[act.rank])

    def _hurt(self, act: Act, pod: str) -> None:
        """Do what is done to one host alone."""
        match act.kind:
            case Kind.SIGNAL:
                self._controllers.exit(pod, 139)
            case Kind.OUT_OF_MEMORY:
                self._controllers.exit(pod, 137, reason="OOMKilled")
            case Kind.EVICT:
                self._controllers.evict(pod)
            case Kind.SHUT_DOWN:
                self._controllers.shut_down(pod)
            case Kind.MISPLACE:
                self._controllers.misplace(pod)
            case Kind.DELETE_POD:
                self._controllers.delete_pod(pod)

    async def _crash(self, plan: Plan, attempt: int, act: Act, pods: list[str]) -> None:
        await self._stop_about_now(plan, act)
        self._controllers.exit(pods[act.rank], act.code)
        if act.kind is Kind.CRASH_ALL:
            for pod in pods:
                self._loop.call_later(
                    PEERS_SECONDS + self._rng.uniform(0.0, 2.0), self._controllers.exit, pod, 1
                )
        if act.kind in (Kind.CRASH_THEN_STOP, Kind.CRASH_THEN_DELETE, Kind.CRASH_THEN_SUSPEND):
            await self._until(lambda: self._backs_off(plan, attempt))
            self.interrupted.add((plan.name, attempt))
            if act.kind is Kind.CRASH_THEN_SUSPEND:
                await self._suspend_for_a_while(plan)
            else:
                self._finish(plan, act)

    async def _stop_about_now(self, plan: Plan, act: Act) -> None:
        """Have the user stop the job a moment before or after this."""
        if act.kind in (Kind.SUCCEED_AND_STOP, Kind.CRASH_AND_STOP):
            if act.later > 0:
                self._loop.call_later(act.later, self._finish, plan, act)
            else:
                self._finish(plan, act)
                await asyncio.sleep(-act.later)

    def _suspend_jobset(self, name: str) -> None:
        jobset = self._server.find(JOBSETS, name)
        if jobset is not None:
            jobset["spec"]["suspend"] = True
            self._server.replace(JOBSETS, jobset, "")

    # --- looking ----------------------------------------------------------------------------------------

    def _status(self, plan: Plan) -> Manifest:
        for job in self._server.look(FRAYJOBS):
            if job["metadata"]["name"] == plan.name:
                status: Manifest = job.get("status", {})
                return status
        return {}

    def _knows(self, plan: Plan, attempt: int, what: str) -> bool:
        return any(
            known["number"] == attempt and what in known for known in self._status(plan).get("attempts", [])
        )

    def _backs_off(self, plan: Plan, attempt: int) -> bool:
        status = self._status(plan)
        return status.get("attempt") == attempt and status.get("reason") == "BackOff"

    async def _until_seen(self, plan: Plan, attempt: int, what: str) -> None:
        """Wait until the operator knows that an attempt runs or ends, which faults may keep from it for long.

        Nothing on the server tells when a job was stopped or suspended, or its JobSet went.
        """
        try:
            async with asyncio.timeout(AWAY_SECONDS):
                await self._until(lambda: self._knows(plan, attempt, what))
        except TimeoutError:
            self.outlasted.add((plan.name, attempt))
            await self._until(lambda: self._knows(plan, attempt, what))

    async def _until(self, check: Callable[[], bool]) -> None:
        while not check():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(LOOK_SECONDS)

    def _start(self, doing: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._loop.create_task(doing))

    def _tell(self, plan: Plan, what: str) -> None:
        self.story.append(f"{self._loop.time():8.1f} s  {plan.name}: {what}")

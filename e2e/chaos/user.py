"""The user of all jobs: submits those of each lane one after the other, and does to them what is planned."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from e2e.chaos.plan import Act, JobPlan, Kind
from e2e.chaos.recorder import Recorder, collection_of
from e2e.chaos.records import UserAct
from e2e.cluster.api import Api, ApiError, Response
from fray.vocabulary import FRAYJOB_PLURAL, Phase

__all__ = ["PATCHES", "Task", "User", "is_done"]

PATCHES = {
    Act.STOP: {"spec": {"stopped": True}},
    Act.SUSPEND: {"spec": {"suspend": True}},
    Act.RESUME: {"spec": {"suspend": False}},
}


@dataclass
class Task:
    """A job under way: since when it is there and runs, and what was done to it."""

    plan: JobPlan
    since: float
    done: int = 0
    ran: bool = False


class User:
    """Works at each `tick`; `under_way` are the jobs that have not ended, by lane.

    `jobs` are those of each lane, in their order.
    """

    def __init__(
        self, api: Api, namespace: str, recorder: Recorder, jobs: Mapping[str, Iterator[JobPlan]]
    ) -> None:
        self.plans: list[JobPlan] = []
        self.under_way: dict[str, Task] = {}
        self._api, self._recorder = api, recorder
        self._collection = collection_of(namespace, FRAYJOB_PLURAL)
        self._waiting = jobs

    def tick(self, *, more: bool) -> None:
        """Do what is due; with `more`, submit a job in each lane that has none. Raises ApiError."""
        for lane, waiting in self._waiting.items():
            task = self.under_way.get(lane)
            if task is not None and self._is_over(task.plan):
                del self.under_way[lane]
                task = None
            if task is not None:
                self._proceed(task)
            elif more:
                plan = next(waiting)
                if not is_done(self._api.post(self._collection, plan.to_manifest()), already=409):
                    continue
                self.plans.append(plan)
                self.under_way[lane] = Task(plan, time.time())

    def has_ended(self, plan: JobPlan) -> bool:
        """Whether a job is what it will be: finished, or gone where that is its end."""
        seen = self._recorder.job(plan.name)
        if seen is None:
            return False
        return seen.gone if plan.kind in (Kind.DELETED, Kind.EXPIRES) else seen.finished or seen.gone

    def _is_over(self, plan: JobPlan) -> bool:
        # A job that waits for its time to live holds no host.
        seen = self._recorder.job(plan.name)
        return self.has_ended(plan) or (seen is not None and seen.finished)

    def _proceed(self, task: Task) -> None:
        plan = task.plan
        if task.done >= len(plan.deeds):
            return
        deed = plan.deeds[task.done]
        if not task.ran and deed.act is not Act.DELETE:
            seen = self._recorder.job(plan.name)
            if seen is None or seen.phase != Phase.RUNNING:
                return
            task.ran, task.since = True, time.time()
        if time.time() < task.since + deed.after:
            return
        attempt = self._recorder.last_attempt(plan.name)
        path = f"{self._collection}/{plan.name}"
        match deed.act:
            case Act.DELETE:
                answer = self._api.delete(path)
            case Act.SCALE:
                answer = self._api.merge(f"{path}/scale", {"spec": {"replicas": deed.workers}})
            case act:
                answer = self._api.merge(path, PATCHES[act])
        if not is_done(answer, already=404):
            return
        task.done, task.since = task.done + 1, time.time()
        self._recorder.records.acts.append(UserAct(task.since, plan.name, attempt, deed.act))


def is_done(answer: Response, *, already: int) -> bool:
    """Whether a user's deed is done; False when a server that is short of breath is to be asked again.

    `already` is what it says of a deed that an answer of that kind hid. Raises ApiError.
    """
    if answer.ok or answer.status == already:
        return True
    if answer.status == 429 or answer.status >= 500:
        return False
    raise ApiError("what a user does was refused", answer)

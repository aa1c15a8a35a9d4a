"""One pass over one FrayJob: observe, decide, write the status, act.

The order matters and is the same in every pass: the status that announces an action is written before
it, so a process that dies in between finds its intention in the cluster. Nothing is remembered between
passes but events that could not be sent yet. Events are never sent twice, but one is lost when the
process dies before it, or when the answer to the status write is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from fray.kube.api import Manifest
from fray.kube.errors import NotFoundError
from fray.plan.acceptance import derive_unsupported
from fray.plan.events import EventDraft, derive_events
from fray.plan.lifecycle import Decision, EndAttempt, StartAttempt, decide
from fray.plan.observation import Waiting
from fray.plan.settings import RetryPolicy
from fray.plan.status import find_condition
from fray.vocabulary import ConditionType, Reason
from fray.wire.frayjob import FrayJob
from fray.wire.status import FrayJobStatus
from fray_operator.act import Actor
from fray_operator.informer import JobKey
from fray_operator.jobs import JobStore
from fray_operator.metrics import Metrics
from fray_operator.observe import Observed, Observer

__all__ = ["Reconciler", "RefusedAttemptError"]

logger = logging.getLogger(__name__)

SELF_ENDING = frozenset(
    {
        Reason.NON_ZERO_EXIT,
        Reason.KILLED_BY_SIGNAL,
        Reason.OUT_OF_MEMORY,
        Reason.START_FAILED,
        Reason.COMPLETED,
    }
)
"""Ends that JobSet brings about by itself: one failed pod fails its Job, and that the JobSet. The JobSet
stays, with the logs of what failed."""
REFUSALS = frozenset({Reason.ADMISSION_REFUSED, Reason.QUOTA_EXCEEDED, Reason.NAME_TAKEN})
"""Reasons why an attempt's JobSet can't be created."""
ENDING_SECONDS = 15.0
"""How often an attempt that is ending is looked at although nothing changed."""


class RefusedAttemptError(Exception):
    """An attempt's JobSet could not be created; the status says why, and it is to be tried again later."""


class Reconciler:
    """Passes over FrayJobs. `clock` returns the time as an aware datetime."""

    def __init__(
        self,
        jobs: JobStore,
        observer: Observer,
        actor: Actor,
        metrics: Metrics,
        *,
        policy: RetryPolicy,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._jobs, self._observer, self._actor, self._metrics = jobs, observer, actor, metrics
        self._policy, self._clock = policy, clock
        self._unsent: dict[JobKey, list[tuple[FrayJob, EventDraft]]] = {}

    async def reconcile(self, key: JobKey) -> float | None:
        """Bring one job a step further; return seconds after which to look again, None when events will do.

        Raises `RefusedAttemptError` when an attempt is to be tried again later, and `ApiError`.
        """
        body = self._jobs.get(key)
        if body is None:
            await self._send_events(key)
            return None
        try:
            job = FrayJob.from_manifest(body)
        except ValidationError as error:
            # The schema keeps such objects out; one can only come from another version of the CRD.
            logger.warning("FrayJob can't be read; is the CRD newer than the operator? %s", error)
            return None
        now = self._clock()
        observed = await self._observer.observe(job, now=now)
        decision = self._decide(job, observed, now)
        told = decision.status.to_manifest() != body.get("status")
        if told:
            await self._tell(key, body, decision)
        await self._act(key, decision, observed, told=told)
        await self._send_events(key)
        return self._next_look(decision, observed, now)

    def _decide(
        self, job: FrayJob, observed: Observed, now: datetime, *, refusal: Waiting | None = None
    ) -> Decision:
        return decide(
            job,
            observed.gang,
            now=now,
            policy=self._policy,
            refusal=refusal or observed.foreign or _last_refusal(job.status),
            unsupported=derive_unsupported(job.spec),
        )

    async def _tell(self, key: JobKey, body: Manifest, decision: Decision) -> None:
        """Write the status, then send the events that tell what changed."""
        job = FrayJob.from_manifest(body)
        try:
            written = await self._actor.write_status(body, decision.status)
        except NotFoundError:
            self._jobs.discard(key, uid=body["metadata"]["uid"])
            raise
        self._jobs.update(written)
        drafts = derive_events(job.status, decision.status)
        self._unsent.setdefault(key, []).extend((job, draft) for draft in drafts)
        self._count(job, decision)

    async def _send_events(self, key: JobKey) -> None:
        """Send what is left to tell; what fails here is sent in a later pass."""
        unsent = self._unsent.get(key, [])
        while unsent:
            await self._actor.send_event(*unsent[0])
            del unsent[0]
        self._unsent.pop(key, None)

    async def _act(self, key: JobKey, decision: Decision, observed: Observed, *, told: bool) -> None:
        match decision.action:
            case StartAttempt(number):
                body = self._jobs.get(key)
                if body is None:
                    return  # it was deleted while its status was written
                job = FrayJob.from_manifest(body)
                # A written status proves that the job exists. Without one it may be gone, unnoticed while
                # the watch was interrupted; its JobSets would be collected and created again for ever.
                if not told and not await self._actor.exists(job):
                    self._jobs.discard(key, uid=body["metadata"]["uid"])
                    return
                refusal = await self._actor.create_attempt(job, number)
                if refusal is not None:
                    await self._tell_refusal(key, body, refusal)
                    raise RefusedAttemptError(refusal.message)
            case EndAttempt(_, reason) if reason not in SELF_ENDING and observed.jobset is not None:
                await self._actor.delete_attempt(observed.jobset)
            case _:
                return

    async def _tell_refusal(self, key: JobKey, body: Manifest, refusal: Waiting) -> None:
        """Write why an attempt could not be started, unless the status says so already."""
        decision = self._decide(FrayJob.from_manifest(body), Observed(), self._clock(), refusal=refusal)
        if decision.status.to_manifest() != body.get("status"):
            await self._tell(key, body, decision)
        await self._send_events(key)

    def _next_look(self, decision: Decision, observed: Observed, now: datetime) -> float | None:
        looks = []
        if decision.wake_at is not None:
            # A moment later: a timer may fire a little early, and the pass would find nothing due.
            looks.append((decision.wake_at - now + timedelta(milliseconds=20)).total_seconds())
        if observed.look_again is not None:
            looks.append(observed.look_again)
        if isinstance(decision.action, EndAttempt):
            # Should the request to end it have been lost, no event would come.
            looks.append(ENDING_SECONDS)
        return max(0.0, min(looks)) if looks else None

    def _count(self, job: FrayJob, decision: Decision) -> None:
        """Count what ended, after the write that says so: a conflict must not count twice."""
        before = {attempt.number for attempt in job.status.attempts if attempt.verdict is not None}
        for attempt in decision.status.attempts:
            if attempt.verdict is not None and attempt.number not in before:
                self._metrics.attempts.labels(attempt.verdict).inc()
        if decision.finished and decision.status.phase is not None:
            self._metrics.finished.labels(decision.status.phase).inc()


def _last_refusal(status: FrayJobStatus) -> Waiting | None:
    """Return why the attempt could not be started when that was tried last, which the status tells."""
    scheduled = find_condition(status, ConditionType.SCHEDULED)
    if scheduled is None or scheduled.reason not in REFUSALS:
        return None
    return Waiting(Reason(scheduled.reason), scheduled.message)

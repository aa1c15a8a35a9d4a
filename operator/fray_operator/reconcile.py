"""One pass over one FrayJob: observe, decide, write the status, act.

The order matters and is the same in every pass: the status that announces an action is written before
it, so a process that dies in between finds its intention in the cluster. Nothing is remembered between
passes but events that could not be sent yet, and when a status was written last: replica counts wait
(`fray.plan.status`). Events are never sent twice, but one is lost when the process dies before it, or
when the answer to the status write is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from fray.kube.api import Manifest
from fray.kube.errors import ConflictError, NotFoundError
from fray.kube.resources import FRAYJOBS
from fray.plan.children import ROLES, find_removed, read_role
from fray.plan.events import EventDraft, derive_events, derive_started
from fray.plan.lifecycle import Decision, EndAttempt, RenumberHosts, StartAttempt, decide
from fray.plan.observation import Waiting
from fray.plan.overlay import derive_unsupported
from fray.plan.pod_observation import is_ending
from fray.plan.reasons import get_row
from fray.plan.settings import RetryPolicy
from fray.plan.status import StatusWrite, derive_write_time, find_condition, record_write
from fray.plan.workers import RemoveWorkers, ResizeWorkers, StartWorkers
from fray.vocabulary import ConditionType, Reason
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, Condition, FrayJobStatus
from fray_operator.act import Actor
from fray_operator.cleanup import Expiry, ObsoleteChildren, OldAttempts, OwnerCascade
from fray_operator.informer import JobKey
from fray_operator.kinds import Kind, RefusedError, UnreadableError
from fray_operator.logs import job_context
from fray_operator.metrics import Metrics
from fray_operator.observe import Observed, Observer
from fray_operator.store import Store
from fray_operator.writer import Writer

__all__ = ["Reconciler"]

logger = logging.getLogger(__name__)

ENDING_SECONDS = 15.0
"""How often an attempt that is ending is looked at although nothing changed."""


class Reconciler:
    """Passes over FrayJobs. `clock` returns the time as an aware datetime."""

    def __init__(  # noqa: PLR0913 - it joins all parts
        self,
        kind: Kind[FrayJob],
        jobs: Store,
        observer: Observer,
        actor: Actor,
        writer: Writer,
        metrics: Metrics,
        *,
        policy: RetryPolicy,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._kind, self._jobs, self._observer, self._actor = kind, jobs, observer, actor
        self._writer, self._metrics = writer, metrics
        self._policy, self._clock = policy, clock
        self._cascade = OwnerCascade(jobs, observer, actor)
        self._expiry, self._old = Expiry(jobs, writer), OldAttempts(actor)
        self._obsolete = ObsoleteChildren(observer, actor, parse=kind.parse)
        self._unsent: dict[JobKey, list[tuple[FrayJob, EventDraft]]] = {}
        self._starting: dict[JobKey, tuple[FrayJob, EventDraft]] = {}
        self._writes: dict[JobKey, StatusWrite] = {}

    async def reconcile(self, key: JobKey) -> float | None:
        """Bring one job a step further; return seconds after which to look again, None when events will do.

        Raises `RefusedError` when an attempt is to be tried again later, `UnreadableError` when
        trying again won't help, and `ApiError`.
        """
        await self._remove_orphans(key)
        body = await self._writer.read_whole(self._jobs, key)
        if body is None:
            self._starting.pop(key, None)
            self._writes.pop(key, None)
            self._observer.forget_gone(key)
            self._old.forget(key)
            look = await self._expiry.expire(key, now=self._clock())
            await self._obsolete.remove_of_unknown(key)
            await self._send_events(key)
            return look
        body = await self._cascade.end_with_parent(body)
        job = known = self._kind.parse(body)
        now = self._clock()
        unrecorded = self._observer.find_unrecorded(job)
        if unrecorded is not None:
            job = _with_attempt(job, unrecorded)
        observed = await self._observer.observe(job, now=now)
        if observed.jobset is not None:
            self._tell_started(key)  # its creation had no answer
            job = _with_jobset_name(job, observed.jobset)
        decision = self._decide(job, observed, now)
        write_at = self._find_write_time(key, body, known, decision, now)
        written = write_at is not None and write_at <= now
        if written:
            await self._tell(key, body, known, decision)
        await self._act(key, job, decision, observed, written=written)
        if decision.unreadable is not None and not (job.spec.suspend or decision.action or decision.finished):
            # What there is belongs to attempts that can't be judged: nothing of it is cleared away.
            await self._send_events(key)
            if written:
                raise UnreadableError(decision.unreadable)
            return None
        decided = job.model_copy(update={"status": decision.status})
        children = self._observer.list_children(key)
        await self._obsolete.remove(key, decided, children)
        await self._old.remove(key, decided, children)
        # Last: a server that takes no events must hold up nothing else.
        await self._send_events(key)
        return self._next_look(decision, observed, now, written=written, write_at=write_at)

    def _decide(
        self, job: FrayJob, observed: Observed, now: datetime, *, refusal: Waiting | None = None
    ) -> Decision:
        return decide(
            job,
            observed.gang,
            now=now,
            policy=self._policy,
            refusal=refusal or observed.foreign or _last_refusal(job.status),
            unsupported=derive_unsupported(job),
            workers=observed.workers.state,
        )

    def _find_write_time(
        self, key: JobKey, body: Manifest, job: FrayJob, decision: Decision, now: datetime
    ) -> datetime | None:
        """Return when the status is to be written, None when it is written already."""
        if decision.status.to_manifest() == body.get("status"):
            return None
        return derive_write_time(job.status, decision.status, self._writes.get(key), now=now)

    async def _tell(self, key: JobKey, body: Manifest, job: FrayJob, decision: Decision) -> None:
        """Write the status of the job in `body`, then send the events that tell what changed."""
        try:
            written = await self._writer.write_status(body, decision.status.to_manifest())
        except NotFoundError:
            self._jobs.discard(key, uid=body["metadata"]["uid"])
            raise
        self._jobs.update(written)
        write = record_write(job.status, decision.status, self._writes.pop(key, None), now=self._clock())
        if not decision.finished:
            self._writes[key] = write
        drafts = derive_events(job.status, decision.status)
        self._unsent.setdefault(key, []).extend((job, draft) for draft in drafts)
        self._count(job, decision)
        accepted = _find_acceptance(decision.status)
        if accepted is not None and _find_acceptance(job.status) is None:
            _log(job, None, accepted.type, accepted.message)
        for draft in drafts:
            if draft.milestone:
                _log(job, draft.attempt, draft.reason, draft.message)

    def _tell_started(self, key: JobKey) -> None:
        """Tell that an attempt was started, now that its JobSet exists."""
        started = self._starting.pop(key, None)
        if started is not None:
            self._unsent.setdefault(key, []).append(started)
            job, draft = started
            _log(job, draft.attempt, draft.reason, draft.message)

    async def _send_events(self, key: JobKey) -> None:
        """Send what is left to tell; what fails here is sent in a later pass."""
        unsent = self._unsent.get(key, [])
        while unsent:
            job, draft = unsent[0]
            await self._writer.send_event(job.metadata, draft)
            del unsent[0]
        self._unsent.pop(key, None)

    async def _act(
        self, key: JobKey, job: FrayJob, decision: Decision, observed: Observed, *, written: bool
    ) -> None:
        match decision.action:
            case StartAttempt(number):
                body = await self._read_current(key, written=written)
                if body is None:
                    return
                job = FrayJob.from_manifest(body)
                refusal = await self._remove_leftovers(job, number)
                if refusal is None:
                    self._starting[key] = job, derive_started(decision.status.attempts[-1])
                    refusal = await self._actor.create_attempt(job, number)
                if refusal is not None:
                    await self._tell_refusal(key, body, refusal)
                    raise RefusedError(refusal.message)
                self._tell_started(key)
            case RenumberHosts(number) if observed.jobset is not None:
                body = await self._read_current(key, written=written)
                if body is None:
                    return
                if written:
                    started = derive_started(decision.status.attempts[-1])
                    self._starting[key] = FrayJob.from_manifest(body), started
                await self._actor.renumber(observed.jobset, number)
            case StartWorkers() | ResizeWorkers() | RemoveWorkers() as step:
                refusal = await self._actor.carry_out(job, step, observed.workers.manifests)
                if refusal is not None:
                    raise RefusedError(refusal.message)
            case EndAttempt(_, reason):
                for child in find_removed(reason, observed.children, observed.gang, now=self._clock()):
                    await self._actor.delete_child(child)
            case _:
                return

    async def _read_current(self, key: JobKey, *, written: bool) -> Manifest | None:
        """Return a job's manifest if its attempt may begin now: it is there, and is what was decided on."""
        body = await self._writer.read_whole(self._jobs, key)
        if body is None or is_ending(body):
            return None  # it was deleted while its status was written
        return body if written or await self._is_current(key, body) else None

    async def _is_current(self, key: JobKey, body: Manifest) -> bool:
        """Return whether the job exists; raises `ConflictError` when it has changed since `body` was seen.

        A written status proves both. Without one the job may be gone, unnoticed while the watch was
        interrupted, and its JobSets would be collected and created again for ever; or its attempt may have
        ended since, as an earlier leader wrote, and would run a second time.
        """
        found = await self._actor.fetch(body)
        if found is None:
            self._jobs.discard(key, uid=body["metadata"]["uid"])
            return False
        if found["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            self._jobs.update(found)
            request = f"GET {FRAYJOBS} {key[1]}"
            raise ConflictError(request, 0, "Behind", "what was known of the job is old")
        return True

    async def _remove_orphans(self, key: JobKey) -> None:
        """Delete what the garbage collector passes by of deleted jobs of this name."""
        for child in await self._observer.find_orphans(key, living=self._jobs.knows):
            kind, name = ROLES[read_role(child)].kind, child["metadata"]["name"]
            logger.info("%s %s is left of a deleted job: deleting it", kind, name)
            await self._actor.delete_child(child)

    async def _remove_leftovers(self, job: FrayJob, number: int) -> Waiting | None:
        """Delete what is left of other attempts; return what has to be gone first, None when nothing has."""
        left = await self._observer.find_leftovers(job, number, now=self._clock())
        if left is None:
            return None
        for jobset in left.jobsets:
            await self._actor.delete_child(jobset)
        return left.waiting

    async def _tell_refusal(self, key: JobKey, body: Manifest, refusal: Waiting) -> None:
        """Write why an attempt could not be started, unless the status says so already."""
        job = FrayJob.from_manifest(body)
        decision = self._decide(job, Observed(), self._clock(), refusal=refusal)
        if decision.status.to_manifest() != body.get("status"):
            await self._tell(key, body, job, decision)
        await self._send_events(key)

    def _next_look(
        self,
        decision: Decision,
        observed: Observed,
        now: datetime,
        *,
        written: bool,
        write_at: datetime | None,
    ) -> float | None:
        due = [at for at in (decision.wake_at, None if written else write_at) if at is not None]
        # A moment later: a timer may fire a little early, and the pass would find nothing due.
        looks = [(at - now + timedelta(milliseconds=20)).total_seconds() for at in due]
        if written and isinstance(decision.action, StartAttempt | RenumberHosts):
            # No event comes when the JobSet was there before and only its name or number was written now.
            looks.append(0.0)
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


def _find_acceptance(status: FrayJobStatus) -> Condition | None:
    accepted = find_condition(status, ConditionType.ACCEPTED)
    return accepted if accepted is not None and accepted.status == "True" else None


def _log(job: FrayJob, attempt: int | None, reason: str, message: str) -> None:
    """Log a step in the life of a job: the pass began before it, so the attempt may be another one now."""
    metadata = job.metadata
    with job_context(namespace=metadata.namespace, name=metadata.name, uid=metadata.uid, attempt=attempt):
        logger.info("%s: %s", reason, message)


def _with_jobset_name(job: FrayJob, jobset: Manifest) -> FrayJob:
    """Return the job with the name of the JobSet that its last attempt was found to have."""
    last = job.status.attempts[-1]
    name = jobset["metadata"]["name"]
    return job if last.job_set == name else _with_attempt(job, last.model_copy(update={"job_set": name}))


def _with_attempt(job: FrayJob, attempt: AttemptStatus) -> FrayJob:
    """Return the job with this as its last attempt; an unfinished one of another number isn't any."""
    before = [one for one in job.status.attempts if one.number < attempt.number]
    attempts = [*before, attempt]
    return job.model_copy(update={"status": job.status.model_copy(update={"attempts": attempts})})


def _last_refusal(status: FrayJobStatus) -> Waiting | None:
    """Return why the attempt could not be started when that was tried last, which the status tells."""
    scheduled = find_condition(status, ConditionType.SCHEDULED)
    if scheduled is None or not get_row(scheduled.reason).refuses:
        return None
    return Waiting(Reason(scheduled.reason), scheduled.message)

"""Running one job to its end: observe the processes, decide, write the status, act, and again.

The decisions are `fray.plan.lifecycle`'s; what is done here is what the operator does with a cluster.
The status is on disk before anything is done about it. Signals, terminals and exit codes are the
command line's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

from fray.cluster.local.attempt import LocalAttempt, Workplace
from fray.cluster.local.claims import JobLocks
from fray.cluster.local.host import HostEvents
from fray.cluster.local.jobs import derive_ended
from fray.cluster.local.ports import PortLeases
from fray.cluster.local.store import JobFolder, StateDirectory
from fray.errors import FrayError, StateDirectoryError
from fray.plan.lifecycle import Decision, EndAttempt, StartAttempt, decide
from fray.plan.settings import RetryPolicy
from fray.plan.status import Ending
from fray.vocabulary import ANNOTATION_STOPPED_BECAUSE, STOPPED_BECAUSE, ConditionType, Reason
from fray.wire.frayjob import FrayJob
from fray.wire.status import FrayJobStatus

__all__ = ["LocalRunner", "RunListener", "build_retry_policy"]

BACKOFF_CAP_SECONDS = 360.0
STOP_POLL_SECONDS = 0.25
"""How often the request of another shell is looked for."""


class RunListener(Protocol):
    """Receives what happens while a job runs. Called from the runner's thread; must return at once."""

    def status_changed(self, job: FrayJob) -> None:
        """The job has a new status, which is on disk."""

    def output_written(self) -> None:
        """Some host has printed something, which is on disk."""

    def ports_moved(self, attempt: int, ports: Mapping[str, str]) -> None:
        """Named ports of an attempt have other numbers than the declared ones: name -> `9000 -> 20001`."""


def build_retry_policy(backoff_seconds: float) -> RetryPolicy:
    """Return the pauses between attempts: `backoff_seconds`, doubled for each in a row."""
    return RetryPolicy(backoff_seconds, max(backoff_seconds, BACKOFF_CAP_SECONDS))


class LocalRunner:
    """Runs one job; use once. `locks` are the job's and stay its caller's to release."""

    def __init__(
        self,
        job: FrayJob,
        *,
        state: StateDirectory,
        locks: JobLocks,
        workplace: Workplace,
        policy: RetryPolicy,
        listener: RunListener,
    ) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        metadata = job.metadata.model_copy(update={"creation_timestamp": now, "generation": 1})
        self._job = job.model_copy(update={"metadata": metadata, "status": FrayJobStatus()})
        self._state = state
        self._folder: JobFolder = state.job(job.metadata.name)
        self._locks = locks
        self._workplace = workplace
        self._policy = policy
        self._listener = listener
        self._attempt: LocalAttempt | None = None
        self._changed = asyncio.Event()
        self._failure: StateDirectoryError | None = None
        self._killing = False

    def stop(self) -> None:
        """End the job: SIGTERM to all processes, SIGKILL after their grace. May be called again."""
        spec = self._job.spec.model_copy(update={"stopped": True})
        annotations = {**self._job.metadata.annotations, ANNOTATION_STOPPED_BECAUSE: STOPPED_BECAUSE}
        metadata = self._job.metadata.model_copy(update={"annotations": annotations})
        self._job = self._job.model_copy(update={"spec": spec, "metadata": metadata})
        self._changed.set()

    def kill(self) -> None:
        """End the job without any grace."""
        self._killing = True
        self.stop()

    async def run(self) -> FrayJob:
        """Return the job once it has finished and no process of it lives.

        Raises:
            StateDirectoryError: status or logs can't be written; all processes were ended.
            PortsExhaustedError: too few ports are free.
        """
        try:
            while True:
                decision = self._pass()
                if decision.finished:
                    return self._job
                if isinstance(decision.action, StartAttempt):
                    await self._start(decision.action.number)
                    continue
                if isinstance(decision.action, EndAttempt):
                    self._end()
                await self._wait(decision.wake_at)
        except FrayError as error:
            await self._close_attempt()
            # Told as well as it can be: if this can't be written, the job is found without a runner.
            with contextlib.suppress(StateDirectoryError):
                ending = Ending(ConditionType.FAILED, Reason.START_FAILED, error.message)
                self._adopt(derive_ended(self._job, ending, datetime.now(UTC)))
            raise
        finally:
            await self._close_attempt()

    def _pass(self) -> Decision:
        if self._failure is not None:
            raise self._failure
        self._changed.clear()
        observed = self._attempt.observation if self._attempt else None
        decision = decide(self._job, observed, now=datetime.now(UTC), policy=self._policy)
        self._adopt(decision.status)
        return decision

    def _adopt(self, status: FrayJobStatus) -> None:
        if status == self._job.status:
            return
        self._job = self._job.model_copy(update={"status": status})
        self._folder.write(self._job)
        self._listener.status_changed(self._job)

    async def _start(self, number: int) -> None:
        await self._close_attempt()
        leases = PortLeases(self._state.ports)
        try:
            self._attempt = LocalAttempt.prepare(
                self._job,
                number,
                self._workplace,
                folder=self._folder,
                leases=leases,
                events=HostEvents(self._changed.set, self._listener.output_written, self._fail),
            )
        except BaseException:
            leases.release()
            raise
        if self._attempt.moved_ports:
            self._listener.ports_moved(number, self._attempt.moved_ports)
        await self._attempt.start(locks=self._locks.hosts)

    def _end(self) -> None:
        if self._attempt is None:
            return
        if self._killing:
            self._attempt.kill()
        else:
            self._attempt.terminate()

    def _fail(self, error: StateDirectoryError) -> None:
        self._failure = self._failure or error
        self._changed.set()

    async def _wait(self, wake_at: datetime | None) -> None:
        """Return when a host has changed, somebody asked for a stop, or the time has come."""
        while not self._changed.is_set():
            seconds = STOP_POLL_SECONDS
            if wake_at is not None:
                left = (wake_at - datetime.now(UTC)).total_seconds()
                if left <= 0:
                    return
                seconds = min(seconds, left)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            if not self._job.spec.stopped and self._folder.stop_requested():
                self.stop()
            if self._job.spec.parent is None and self._state.actors.exists():
                self._start_actors()

    def _start_actors(self) -> None:
        """Start actors that have no process: what a job's own processes start would end with them."""
        from fray.runtime.actors.local_objects import FileApi  # noqa: PLC0415 - few jobs have actors
        from fray.runtime.actors.local_pod import start_members  # noqa: PLC0415

        start_members(FileApi(self._state.root))

    async def _close_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            await attempt.close()

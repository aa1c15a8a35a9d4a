"""A job that this process launched: run by its event loop, waited for and watched by its other threads."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from fray.cluster.local.attempt import Workplace
from fray.cluster.local.claims import JobLocks
from fray.cluster.local.jobs import derive_ended
from fray.cluster.local.runner import LocalRunner
from fray.cluster.local.store import StateDirectory
from fray.errors import FrayError
from fray.plan.settings import RetryPolicy
from fray.plan.status import Ending
from fray.vocabulary import ConditionType, Reason
from fray.wire.frayjob import FrayJob

__all__ = ["LaunchedJob", "LaunchedJobWatch"]

logger = logging.getLogger(__name__)


class LaunchedJob:
    """A job of this process, from its launch to its end and beyond.

    `finished` is called, in the event loop, when it has ended: nothing of it runs, its output and its status
    are on disk, and its locks are free. `locks` become its own.
    """

    def __init__(
        self,
        job: FrayJob,
        *,
        state: StateDirectory,
        locks: JobLocks,
        workplace: Workplace,
        policy: RetryPolicy,
        finished: Callable[[], object],
    ) -> None:
        metadata = job.metadata.model_copy(update={"uid": str(uuid.uuid4())})
        self._job = job.model_copy(update={"metadata": metadata})
        self._folder = state.job(job.metadata.name)
        self._locks = locks
        self._on_finished = finished
        self._finished = False
        self._changes = 0
        self._changed = threading.Condition()
        self._runner: LocalRunner | None = LocalRunner(
            self._job, state=state, locks=locks, workplace=workplace, policy=policy, listener=self
        )

    @property
    def job(self) -> FrayJob:
        """The job as it stands."""
        return self._job

    @property
    def finished(self) -> bool:
        """Whether it has ended, and `finished` was or is being called."""
        return self._finished

    async def run(self) -> None:
        """Run the job to its end. Never raises: what goes wrong becomes the job's failure."""
        job: FrayJob | None = None
        runner = self._runner
        assert runner is not None
        try:
            job = await runner.run()
        except FrayError as error:
            job = self._failed(error.message)
        except Exception as error:
            logger.exception("job %s: the local backend failed", self._job.metadata.name)
            job = self._failed(f"the local backend failed: {type(error).__name__}: {error}")
        finally:
            self._folder.remove_inputs()
            self._locks.release()
            self._end(job if job is not None else self._failed("the program that ran it is ending"))

    def stop(self) -> None:
        """End the job with grace; only from the event loop."""
        if self._runner is not None:
            self._runner.stop()

    def kill(self) -> None:
        """End the job at once; only from the event loop."""
        if self._runner is not None:
            self._runner.kill()

    def see(self) -> tuple[FrayJob, bool, int]:
        """Return the job, whether it has ended, and the number of changes so far."""
        with self._changed:
            return self._job, self._finished, self._changes

    def wait_changed(self, seen: int, seconds: float | None) -> None:
        """Return once there were more changes than `seen`, after `seconds` at the latest."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes > seen, seconds)

    def status_changed(self, job: FrayJob) -> None:
        """Take in the new status; as `RunListener` says."""
        with self._changed:
            self._job = job
            self._tell()

    def output_written(self) -> None:
        """Tell those who read the output; as `RunListener` says."""
        with self._changed:
            self._tell()

    def ports_moved(self, attempt: int, ports: Mapping[str, str]) -> None:
        """Tell people; as `RunListener` says."""
        changes = "; ".join(f"{name} {change}" for name, change in ports.items())
        logger.info("%s: attempt %d: ports: %s", self._job.metadata.name, attempt, changes)

    def _failed(self, message: str) -> FrayJob:
        ending = Ending(ConditionType.FAILED, Reason.START_FAILED, message)
        status = derive_ended(self._job, ending, datetime.now(UTC))
        return self._job.model_copy(update={"status": status})

    def _end(self, job: FrayJob) -> None:
        self._runner = None  # it holds the callable, which may be large
        with self._changed:
            self._job, self._finished = job, True
            self._tell()
        self._on_finished()

    def _tell(self) -> None:
        self._changes += 1
        self._changed.notify_all()


class LaunchedJobWatch:
    """A job of this process as one of its threads watches it; see `JobWatch`."""

    def __init__(self, job: LaunchedJob) -> None:
        self._job = job
        self._seen = -1

    def look(self) -> tuple[FrayJob, bool]:
        """Return the job as it stands."""
        job, finished, self._seen = self._job.see()
        return job, finished

    def pause(self, seconds: float | None = None) -> None:
        """Wait for a change, `seconds` at most."""
        self._job.wait_changed(self._seen, seconds)

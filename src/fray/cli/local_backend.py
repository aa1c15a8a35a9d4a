"""The jobs of this machine, as the commands ask for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from fray.cli.log_request import LogRequest
from fray.cli.logs import show_logs
from fray.cli.streams import Stream
from fray.cluster.local.jobs import list_jobs, observe_job, stop_job
from fray.cluster.local.store import StateDirectory
from fray.errors import WaitTimeoutError
from fray.plan.status import is_finished
from fray.settings import Settings
from fray.wire.frayjob import FrayJob

__all__ = ["LocalBackend"]

POLL_SECONDS = 0.1


class LocalBackend:
    """The jobs of a state directory, whoever runs them."""

    def __init__(self, state: StateDirectory, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._state = state
        self._sleep = sleep

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> LocalBackend:
        """Return the jobs of a user; raises `SettingError`."""
        return cls(StateDirectory(Settings.from_env(environ).state_dir))

    @property
    def place(self) -> str:
        """The state directory."""
        return str(self._state.root)

    def list_jobs(self) -> list[FrayJob]:
        """Return all jobs, sorted by name."""
        return list_jobs(self._state)

    def find_job(self, name: str) -> FrayJob:
        """Return a job; raises `JobNotFoundError`."""
        return observe_job(self._state, name)

    def stop_job(self, name: str, *, wait: bool) -> FrayJob:
        """Ask a job to end, and return it; with `wait` once its processes have ended."""
        return stop_job(self._state, name, timeout=None if wait else 0, sleep=self._sleep)

    def wait_finished(self, names: Sequence[str], timeout: float | None) -> list[FrayJob]:
        """Return jobs once all have finished; raises `JobNotFoundError` or `WaitTimeoutError`."""
        give_up_at = None if timeout is None else time.monotonic() + timeout
        while True:
            jobs = [self.find_job(name) for name in names]
            unfinished = tuple(job.metadata.name for job in jobs if not is_finished(job.status))
            if not unfinished:
                return jobs
            if give_up_at is not None and timeout is not None and time.monotonic() >= give_up_at:
                raise WaitTimeoutError(unfinished, timeout)
            self._sleep(POLL_SECONDS)

    def show_logs(self, request: LogRequest, output: Stream) -> None:
        """Print what a job's processes printed; raises `JobNotFoundError` or `LogsNotFoundError`."""
        show_logs(request, state=self._state, output=output, sleep=self._sleep)

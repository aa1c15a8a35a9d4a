"""The state directory: one folder for each local job, with its resource, its logs and its locks.

    <state>/jobs/<name>/job.json                   the FrayJob with its status, replaced in one step
    <state>/jobs/<name>/runner.lock                held by the job's `fray run`; tells whether it lives
    <state>/jobs/<name>/hosts.lock                 held as long as any process of the job lives
    <state>/jobs/<name>/stop                       there once somebody has asked the job to stop
    <state>/jobs/<name>/logs/attempt-1/...         see `output`, and `callables`
    <state>/jobs/<name>/environments/...           virtual environments of its hosts, until it ends
    <state>/jobs/<name>/payload/                   the pickled callable, until it ends
    <state>/ports/20001                            see `ports`
    <state>/actors/                                see `fray.runtime.actors.local_objects`
    <state>/launch.lock                            held while a name is looked up and then taken

Only the runner writes a job's folder, but for `stop`. What the files mean for a job is `jobs`.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from fray.errors import StateDirectoryError
from fray.wire.frayjob import FrayJob

__all__ = ["KEPT_ATTEMPTS", "JobFolder", "StateDirectory", "state_errors"]

KEPT_ATTEMPTS = 10
"""Attempts whose logs are kept; as many as status tells about."""
RESOURCE_FILE = "job.json"
STOP_FILE = "stop"
RUNNER_LOCK = "runner.lock"
HOSTS_LOCK = "hosts.lock"
LAUNCH_LOCK = "launch.lock"


@contextmanager
def state_errors(path: Path) -> Iterator[None]:
    """Turn an operating system's refusal into `StateDirectoryError` that names the path."""
    try:
        yield
    except OSError as error:
        raise StateDirectoryError(str(error.filename or path), error.strerror or str(error)) from error


class StateDirectory:
    """All that the local backend keeps, below one folder; nothing is made before it is needed."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def ports(self) -> Path:
        """Folder of the leased ports."""
        return self.root / "ports"

    @property
    def actors(self) -> Path:
        """Folder of the FrayActors; there once one was made."""
        return self.root / "actors"

    def job(self, name: str) -> JobFolder:
        """Return the folder of a job, whether it exists or not; `name` is a legal FrayJob name."""
        return JobFolder(self.root / "jobs" / name)

    @contextmanager
    def launching(self) -> Iterator[None]:
        """Keep everybody else out who looks whether a job of some name lives before launching one.

        Raises:
            StateDirectoryError: the lock can't be had.
        """
        path = self.root / LAUNCH_LOCK
        with state_errors(path):
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except BaseException:
                os.close(file)
                raise
        try:
            yield
        finally:
            # A process that is just being started has the open file, too.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def job_names(self) -> list[str]:
        """Return the names of all jobs that have a folder.

        Raises:
            StateDirectoryError: the directory can't be read.
        """
        folder = self.root / "jobs"
        with state_errors(folder):
            try:
                return sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
            except FileNotFoundError:
                return []


class JobFolder:
    """The folder of one job."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def runner_lock(self) -> Path:
        """File whose lock the job's runner holds."""
        return self.path / RUNNER_LOCK

    @property
    def hosts_lock(self) -> Path:
        """File whose lock the job's runner and all its hosts hold together."""
        return self.path / HOSTS_LOCK

    @property
    def payload(self) -> Path:
        """Folder of the pickled callable."""
        return self.path / "payload"

    @property
    def environments(self) -> Path:
        """Folder of the hosts' own virtual environments."""
        return self.path / "environments"

    @property
    def logs(self) -> Path:
        """Folder of the logs of all attempts."""
        return self.path / "logs"

    def attempt_logs(self, number: int) -> Path:
        """Folder of the logs of one attempt."""
        return self.logs / f"attempt-{number}"

    def create(self) -> None:
        """Make the folder.

        Raises:
            StateDirectoryError: it can't be made.
        """
        with state_errors(self.path):
            # Logs and variables of a job are nobody else's business.
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def claim(self) -> bool:
        """Make the folder; return whether it is new, which is True for only one of all that try.

        Raises:
            StateDirectoryError: it can't be made.
        """
        with state_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                self.path.mkdir(mode=0o700)
            except FileExistsError:
                return False
        return True

    def clear(self) -> None:
        """Remove what an earlier run left, but for the locks: the caller holds them."""
        with state_errors(self.path):
            for name in (RESOURCE_FILE, STOP_FILE):
                (self.path / name).unlink(missing_ok=True)
            for folder in (self.logs, self.payload, self.environments):
                if folder.exists():
                    shutil.rmtree(folder)

    def remove(self) -> None:
        """Remove the folder and all that is in it, as far as that can be done."""
        shutil.rmtree(self.path, ignore_errors=True)

    def remove_inputs(self) -> None:
        """Remove what only running hosts need, as far as that can be done."""
        for folder in (self.environments, self.payload):
            shutil.rmtree(folder, ignore_errors=True)

    def prune_logs(self, *, newest: int) -> None:
        """Remove the logs of the attempt that is no longer shown once `newest` has begun."""
        with state_errors(self.logs):
            outdated = self.attempt_logs(newest - KEPT_ATTEMPTS)
            if outdated.exists():
                shutil.rmtree(outdated)

    def read(self) -> FrayJob | None:
        """Return the resource as it was written last; None where there is none.

        Raises:
            StateDirectoryError: it can't be read, or is no FrayJob.
        """
        path = self.path / RESOURCE_FILE
        with state_errors(path):
            try:
                content = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        try:
            return FrayJob.from_manifest(json.loads(content))
        except (ValueError, ValidationError) as error:
            raise StateDirectoryError(str(path), "holds no FrayJob; remove the folder") from error

    def write(self, job: FrayJob) -> None:
        """Replace the resource in one step: readers see the old one or the new one, also after a crash.

        Raises:
            StateDirectoryError: the disk is full or the folder is gone.
        """
        path = self.path / RESOURCE_FILE
        temporary = path.with_suffix(".new")
        content = json.dumps(job.to_manifest(), indent=1).encode()
        with state_errors(path):
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)

    def written_at(self) -> float:
        """Return when the resource was written last, in seconds since 1970."""
        with state_errors(self.path):
            return (self.path / RESOURCE_FILE).stat().st_mtime

    def request_stop(self) -> None:
        """Ask the job's runner to stop it; the runner looks for this several times a second."""
        with state_errors(self.path):
            (self.path / STOP_FILE).touch()

    def stop_requested(self) -> bool:
        """Whether somebody has asked the job to stop."""
        return (self.path / STOP_FILE).exists()

"""The processes of a job with worker pods, on this machine: a head, hosts of workers, and clients."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fray.job import JobContext
from fray.job.pool import join_pool
from tests.pool.hosts.pools import PATIENCE, ROOT

__all__ = ["Pods", "running_pods"]

_CLIENT = """
import sys
from fray.job import get_default_job_ctx
from tests.pool.clients import programs
getattr(programs, sys.argv[1])(get_default_job_ctx(), *sys.argv[2:])
"""


@dataclass
class Pods:
    """A running head, and what was started beside it."""

    head: subprocess.Popen[str]
    address: str
    key: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    contexts: list[JobContext] = field(default_factory=list)

    @property
    def environ(self) -> dict[str, str]:
        """The variables by which a process joins."""
        return {
            "FRAY_POOL_HEAD": self.address,
            "FRAY_POOL_KEY": str(self.key),
            "FRAY_POOL_OBJECTS": "tcp:127.0.0.1:0",
        }

    def join(self) -> JobContext:
        """Make this process a client once more."""
        self.contexts.append(join_pool(self.environ))
        return self.contexts[-1]

    def get(self, context: JobContext, ref: Any) -> Any:
        """Return the value of a ref, which is there soon."""
        return context.get(ref, timeout=PATIENCE)

    def start_host(self, *, workers: int = 2, patience: float = 60.0) -> subprocess.Popen[str]:
        """Start a host of workers; it joins some time later."""
        return self._start(
            "-m", "fray.runtime.pool.host.worker_host", "--head", self.address, "--key", str(self.key),
            "--objects", "tcp:127.0.0.1:0", "--workers", str(workers), "--patience", str(patience),
        )  # fmt: skip

    def start_client(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a process that joins by its variables, and runs a function of `programs`."""
        return self._start("-c", _CLIENT, program, *arguments)

    def _start(self, *command: str) -> subprocess.Popen[str]:
        environ = {**os.environ, **self.environ}
        process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        return process

    def close(self) -> None:
        """End everything, the clients first."""
        for context in self.contexts:
            context.shutdown()
        for process in (*self.processes, self.head):
            process.terminate()
        for process in (*self.processes, self.head):
            process.communicate(timeout=PATIENCE)


@contextlib.contextmanager
def running_pods(key: Path, port: int = 0, *, open_files: int | None = None) -> Iterator[Pods]:
    """Give a pool that has a head and nothing else; `open_files` is the limit that the head begins with."""
    words = [
        sys.executable,
        "-m",
        "fray.runtime.pool.head",
        "--listen",
        f"tcp:127.0.0.1:{port}",
        "--key",
        key,
    ]
    if open_files is not None:
        words = ["sh", "-c", f'ulimit -S -n {open_files}; exec "$@"', "sh", *words]
    head = subprocess.Popen(
        words,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
    )
    assert head.stdout is not None
    told = head.stdout.readline()
    assert told.startswith("listening on "), told
    pods = Pods(head, told.removeprefix("listening on ").strip(), key)
    try:
        yield pods
    finally:
        pods.close()

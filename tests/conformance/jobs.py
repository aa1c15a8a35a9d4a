"""What the suite's jobs do, and how its tests launch them and wait for what they print."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from fray.cluster import Cluster, Entrypoint, JobId, JobRequest, LogLine

__all__ = ["PATIENCE", "RefusedError", "launch", "read_until", "run", "shell", "stay", "texts", "until"]

PATIENCE = 100.0
"""Seconds within which whatever must happen happens, on a machine that stops at times."""


class RefusedError(Exception):
    """An exception of the test's own, with data."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why, code)
        self.why = why
        self.code = code


def launch(cluster: Cluster, name: str, function: Callable[..., Any], *args: Any, **options: Any) -> JobId:
    return cluster.launch(JobRequest(name, Entrypoint.from_callable(function, args), **options))


def shell(cluster: Cluster, name: str, script: str, **options: Any) -> JobId:
    return cluster.launch(JobRequest(name, Entrypoint.from_command(["sh", "-c", script]), **options))


def run(cluster: Cluster, name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return what a callable returns as a job."""
    job = launch(cluster, name, function, *args, **options)
    cluster.wait(job, raise_on_failure=True, timeout=PATIENCE)
    outcome = cluster.outcome(job)
    assert outcome is not None
    return outcome.result()


def stay() -> None:
    """Say that it runs, and go on until somebody ends it."""
    print("ready", flush=True)
    for _ in itertools.count():
        time.sleep(0.05)


def texts(lines: Iterator[LogLine]) -> list[str]:
    return [line.text for line in lines]


def read_until(cluster: Cluster, job: JobId, text: str, *, count: int = 1) -> None:
    """Return once `count` lines of a job were this text."""
    with closing(cluster.logs(job, follow=True)) as lines:  # type: ignore[type-var]
        found = (line for line in lines if line.text == text)
        assert len(list(itertools.islice(found, count))) == count, f"{job} ended without it"


def until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at, "it never came to that"
        time.sleep(0.02)

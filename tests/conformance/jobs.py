"""What the suite's jobs do, and how its tests launch them and wait for what they print."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

from fray.cluster import (
    Cluster,
    Entrypoint,
    JobId,
    JobRequest,
    LogLine,
    ResourceConfig,
    current_cluster,
)
from fray.errors import JobNotFoundError, SurroundingsError

__all__ = [
    "PATIENCE",
    "SMALL",
    "Background",
    "RefusedError",
    "launch",
    "launch_small",
    "read_until",
    "run",
    "shell",
    "stay",
    "stay_until_told",
    "tell",
    "texts",
    "until",
]

PATIENCE = 300.0
"""Seconds within which whatever must happen happens, on a machine that stops at times."""


SMALL: Mapping[str, Any] = {"cpu": 0.05, "ram": "512m", "disk": "100m"}
"""What a job asks for where many share a machine."""


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


def stay_until_told(sign: str) -> int:
    """Say that it runs, and go on until there is a job of this name; see `tell`."""
    cluster = current_cluster()
    print("ready", flush=True)
    while True:
        try:
            cluster.poll(JobId(sign))
        except (JobNotFoundError, SurroundingsError):  # not yet, or its server is being restarted
            time.sleep(0.1)
        else:
            break
    print("told", flush=True)
    return 42


def tell(cluster: Cluster, sign: str) -> None:
    """Let a job go on that stays until it is told."""
    assert shell(cluster, sign, "true") == sign


def launch_small(title: str) -> JobId:
    """Launch a job within a job: all pods may share two cores."""
    double = Entrypoint.from_callable(lambda: 21 * 2)
    return current_cluster().launch(JobRequest(title, double, ResourceConfig(**SMALL)))


class Background:
    """A call in a thread of its own, which doesn't hold up the end of the tests."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self._ended: list[tuple[Any, BaseException | None]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> Any:
        """Wait for it; return what it returned or raise what it raised."""
        self._thread.join(PATIENCE)
        assert self._ended, "it isn't over"
        ((result, error),) = self._ended
        if error is not None:
            raise error
        return result

    def _run(self) -> None:
        try:
            self._ended.append((self._act(), None))
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._ended.append((None, error))


def texts(lines: Iterator[LogLine]) -> list[str]:
    return [line.text for line in lines]


def read_until(cluster: Cluster, job: JobId, text: str, *, count: int = 1) -> None:
    """Return once `count` lines of a job were this text."""
    with closing(cluster.logs(job, follow=True)) as lines:  # type: ignore[type-var]
        found = (line for line in lines if line.text == text)
        assert len(list(itertools.islice(found, count))) == count, f"{job} ended without it"


def until(condition: Callable[[], bool], *, told: Callable[[], object] = lambda: "") -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at, f"it never came to that: {told()}"
        time.sleep(0.02)

"""What the programs of Dask and of Ray in pods share: how a worker joins, and how they end.

An engine only says how one try to join goes.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from fray.errors import AttemptOverError, ContextUnavailableError, HeadUnknownError, PoolVersionError
from fray.kube.errors import ApiError
from fray.runtime.outcome_report import Reporter
from fray.runtime.pool.host.readiness import ReadinessServer
from fray.runtime.pool.machine.resources import UNBOUNDED, describe_shape
from fray.runtime.pool.messages.specs import Shape
from fray.runtime.pool.pod import PodPool, read_offer
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.worker_pod import HEAD_SECONDS, PATIENCE, build_resources
from fray.vocabulary import (
    EXIT_ATTEMPT_OVER,
    EXIT_PAYLOAD_CODE,
    EXIT_WORKER_LOST_HEAD,
    EXIT_WORKER_REFUSED,
    TERMINATION_LOG,
)

__all__ = [
    "ANSWER_SECONDS",
    "OFFERS",
    "Join",
    "Unheld",
    "Versions",
    "WorkerPod",
    "check_versions",
    "describe_packages",
    "holds",
    "report_end",
    "report_missing",
]

_log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 5.0
"""How long the head, and the API server, may take to answer."""
TRY_SECONDS: Final = 1.0
"""Between two tries to join."""
OFFERS: Final = "fray-offers"
"""Metadata of Dask's scheduler: a list of the resources that each worker has; empty: the job doesn't say."""


class Versions(NamedTuple):
    """What must be the same in all pods: values are pickled, and an engine's messages follow its version."""

    python: str
    engine: str
    fray: str


class WorkerPod:
    """A worker's pod, from its first try to join until it ends.

    `pool` is that of its job, `resources` what it offers, `leaving` set once it was asked to go. `environ`
    and `ready_port` are as those of `fray.runtime.pool.worker_pod`.
    """

    def __init__(self, environ: Mapping[str, str], *, ready_port: int) -> None:
        self.pool = PodPool.from_env(environ)
        self.resources = build_resources(dict(read_offer(environ)))
        self.leaving = threading.Event()
        self._known = ""
        self._readiness = ReadinessServer(Address(host=self.pool.objects.host, port=ready_port))

    def run(self, join: Join, *, faults: tuple[type[Exception], ...]) -> int:
        """Join until SIGTERM, until the head lets it go, or until the attempt is over; return the exit code.

        `join` is tried again where it can't reach the head. It then raises `OSError` or one of `faults`.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            # The code that a signal interrupts may hold the lock of the event.
            signal.signal(number, lambda *_: threading.Thread(target=self.leaving.set).start())
        self._readiness.start()
        waits: tuple[type[Exception], ...] = (OSError, HeadUnknownError, ApiError, *faults)
        lost_since = time.monotonic()
        while not self.leaving.is_set():
            try:
                # As in `fray.runtime.pool.worker_pod`: a SIGTERM that came before the handler got lost.
                if self.pool.is_to_go() or not join(self, self.find_head()):
                    return 0
                lost_since = time.monotonic()
            except AttemptOverError as error:
                return report_end(error, EXIT_ATTEMPT_OVER)
            except PoolVersionError as error:
                return report_end(error, EXIT_WORKER_REFUSED)
            except waits as error:
                _log.warning("not joined yet: %s", error)
                patience = PATIENCE if self._known else HEAD_SECONDS
                if time.monotonic() - lost_since > patience:
                    return report_end(error, EXIT_WORKER_LOST_HEAD)
            self.leaving.wait(TRY_SECONDS)
        return 0

    def find_head(self) -> Address:
        """Return where the head is; raises what `PodPool.find_head` raises."""
        place = self.pool.find_head(known=self._known, seconds=ANSWER_SECONDS)
        self._known = place.pod
        return place.address

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Say that the worker takes tasks, until the block ends."""
        self._readiness.ready = True
        try:
            yield
        finally:
            self._readiness.ready = False


Join = Callable[[WorkerPod, Address], bool]
"""Is a worker of the head at an address for as long as it can be; returns whether to come back.

Raises `AttemptOverError`, `PoolVersionError`, and what stands for a head that doesn't answer.
"""


class Unheld:
    """Warns of what waits and no worker can ever hold: of each shape once."""

    def __init__(self) -> None:
        self._told: set[Shape] = set()

    def tell(self, waiting: Mapping[Shape, int], offered: Shape) -> None:
        """Take note of shapes that no worker can hold, with how many wait for each; each offers so much."""
        bounded = tuple((name, amount) for name, amount in offered if amount < UNBOUNDED)
        for shape, count in waiting.items():
            if shape not in self._told:
                self._told.add(shape)
                _log.warning(
                    "No worker can ever hold %s (each has %s), for which %s tasks or actors wait. "
                    "Let them ask for less, or give workers more: spec.workers.resources.",
                    describe_shape(shape),
                    describe_shape(bounded),
                    count,
                )


def holds(offered: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    """Return whether somebody who offers so much could ever hold that."""
    return all(offered.get(name, 0.0) >= amount for name, amount in wanted.items())


def describe_packages(package: str) -> str:
    """Return where the package of an engine comes from in pods."""
    return f"Add `{package}` to the image, or to spec.environment.pipPackages."


def check_versions(package: str, *, head: Versions, worker: Versions) -> None:
    """Raise `PoolVersionError` for a worker that can't join. `package` is that of the engine."""
    if worker == head:
        return
    raise PoolVersionError(
        f"It has Python {worker.python}, {package} {worker.engine} and Fray {worker.fray}; the head has "
        f"Python {head.python}, {package} {head.engine} and Fray {head.fray}. Give workers the image of the "
        f"job, or both images of Python {head.python}, with `{package}=={head.engine}` in the pipPackages of "
        "each environment."
    )


def report_end(problem: object, code: int) -> int:
    """Write why a program ends; return its exit code."""
    sys.stderr.write(f"fray: {problem}\n")
    return code


def report_missing(error: ContextUnavailableError) -> int:
    """Tell the operator that the engine's package isn't there; return the exit code.

    The operator ends the job for it: the next pod of that image would lack the package too.
    """
    Reporter(None, Path(TERMINATION_LOG)).never_ran(error)
    return report_end(error, EXIT_PAYLOAD_CODE)

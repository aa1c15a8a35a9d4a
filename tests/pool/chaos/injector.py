"""Carries out the planned faults on the processes of a pool, in a thread beside the load."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from fray.runtime.pool.host.processes import children
from tests.pool.chaos.disk import SmallDisk
from tests.pool.chaos.plan import Blow, Fault

__all__ = ["Injector"]

NANNY_PAUSE = 20.0
"""Seconds between two kills of the nanny: the pool gives its host up after five within a minute."""
FULL_FACTOR = 10.0
"""A disk is full for so many times the seconds that a process stands still."""
_WORKERS_HIT = {Blow.KILL: 1, Blow.STOP: 1, Blow.KILL_THREE: 3}


class Injector:
    """Does each fault once so many units have ended.

    Parameters: the `schedule`; `nanny` gives the pid of the pool's nanny; `disk` is the one that is filled.
    """

    def __init__(self, schedule: Iterator[Fault], nanny: Callable[[], int], disk: SmallDisk | None) -> None:
        self.done: Counter[Blow] = Counter()
        self.deaths = 0
        """Workers that were killed from here."""
        self.killed: set[int] = set()
        """The pids of all processes that have ended by what was done here."""
        self._schedule = schedule
        self._nanny = nanny
        self._disk = disk
        self._changed = threading.Condition()
        self._ended = 0
        self._over = False
        self._order = itertools.count()
        self._lasting: list[tuple[float, int, Callable[[], None]]] = []
        """What ends later: when, and by what."""
        self._next_nanny = 0.0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="chaos")

    def __enter__(self) -> Injector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def note(self, ended: int) -> None:
        """Take note that so many units have ended in all."""
        with self._changed:
            self._ended = ended
            self._changed.notify()

    def stop(self) -> None:
        """Do no more, and let everything that stands go on. May be called twice.

        Raises what went wrong here.
        """
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            fault = next(self._schedule)
            while self._await(fault.after):
                self._strike(fault)
                fault = next(self._schedule)
        except BaseException as error:  # noqa: BLE001 - raised by `stop`
            self._failure = error
        finally:
            self._let_go(float("inf"))

    def _await(self, ended: int) -> bool:
        """Return at the fault's time, and end what has lasted long enough until then; False: it's over."""
        while True:
            self._let_go(time.monotonic())
            left = self._lasting[0][0] - time.monotonic() if self._lasting else None
            with self._changed:
                if self._over:
                    return False
                if self._ended >= ended:
                    return True
                self._changed.wait(None if left is None else max(left, 0.0))

    def _let_go(self, until: float) -> None:
        while self._lasting and self._lasting[0][0] <= until:
            heapq.heappop(self._lasting)[2]()

    def _later(self, seconds: float, end: Callable[[], None]) -> None:
        heapq.heappush(self._lasting, (time.monotonic() + seconds, next(self._order), end))

    def _strike(self, fault: Fault) -> None:
        nanny = self._nanny()
        if fault.blow is Blow.KILL_NANNY:
            if time.monotonic() < self._next_nanny:
                return
            self._next_nanny = time.monotonic() + NANNY_PAUSE
            # All its workers end with it: it stands, so that these are all.
            _send(nanny, signal.SIGSTOP)
            _await_standing(nanny)
            workers = children(nanny)
            _send(nanny, signal.SIGKILL)
            self.killed |= {nanny, *workers}
        elif fault.blow is Blow.STOP_NANNY:
            self._hold(nanny, fault.seconds)
        elif fault.blow is Blow.FILL_DISK:
            if self._disk is None:
                return
            self._disk.fill()
            self._later(FULL_FACTOR * fault.seconds, self._disk.free)
        else:
            self._strike_workers(fault, sorted(children(nanny)))
        self.done[fault.blow] += 1

    def _strike_workers(self, fault: Fault, workers: list[int]) -> None:
        first = int(fault.victim * len(workers))
        hit = (workers[first:] + workers[:first])[: _WORKERS_HIT.get(fault.blow)]
        for pid in hit:
            if fault.blow is Blow.STOP:
                self._hold(pid, fault.seconds)
            else:
                _send(pid, signal.SIGKILL)
                self.killed.add(pid)
                self.deaths += 1

    def _hold(self, pid: int, seconds: float) -> None:
        _send(pid, signal.SIGSTOP)
        self._later(seconds, lambda: _send(pid, signal.SIGCONT))


def _send(pid: int, number: int) -> None:
    # It may have ended. Its number isn't another's yet: numbers are given in turn.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _await_standing(pid: int) -> None:
    """Return when a process stands still, or has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        # proc_pid_stat(5): the state stands behind the name, which may hold blanks.
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZX":
            time.sleep(0.001)

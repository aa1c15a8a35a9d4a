"""How long the supervisor of an actor waits before it starts the actor's process again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fray.runtime.actors import pod as module
from fray.runtime.actors.identity import ActorPod, Member
from fray.runtime.actors.pod import Supervisor
from fray.runtime.actors.record import LastError, MemberRecord
from fray.runtime.pool.transport.addresses import Address
from fray.vocabulary import EXIT_FAILURE

POD = ActorPod(Member("counter", "counter", "u1"), "p1", "10.0.0.1", Path("key"))


class Record:
    """Counts starts without limit."""

    starts = 0

    def begin(self) -> MemberRecord:
        self.starts += 1
        return MemberRecord("p1", self.starts, "tcp:10.0.0.1:7000")

    def tell(self, **_: Any) -> None: ...


class Rehearsal(Supervisor):
    """Runs processes that live so many seconds each, by a clock of its own; it is to end after the last."""

    def __init__(self, lives: Sequence[float], pod: ActorPod = POD) -> None:
        self.record = Record()
        record: Any = self.record
        super().__init__(pod, record, (Address(path="head"),))
        self.now, self.lives = 0.0, list(lives)
        self.waits: list[float | None] = []

    def _run_once(self, record: MemberRecord) -> LastError:
        self.now += self.lives[record.start - 1]
        return LastError("ValueError", "no such table")

    def _await_news(self, seconds: float | None, news: int = -1) -> None:  # noqa: ARG002
        self.waits.append(seconds)
        self.now += seconds or 0.0
        self._ending = self.record.starts == len(self.lives)


@pytest.fixture
def rehearse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rehearsal]:
    """Make a supervisor whose clock is its own, and that leaves this process's signals alone."""
    monkeypatch.setattr(module, "watch_signals", lambda *_: (-1, -1))
    monkeypatch.setattr(module, "adopt_orphans", lambda: None)

    def make(*arguments: Any) -> Rehearsal:
        made = Rehearsal(*arguments)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: made.now))
        return made

    return make


@pytest.mark.parametrize(
    ("lives", "waits"),
    [
        # Each twice as long as the one before, up to a minute.
        ([0.25] * 10, [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]),
        ([0.25, 30, 60, 0.25], [0.5, 1, 2, 4]),
        # A life of more than a minute makes the earlier failures forgotten.
        ([0.25, 0.25, 0.25, 60.25, 0.25, 0.25], [0.5, 1, 2, 0.5, 1, 2]),
        ([0.25] * 9 + [3600, 3600, 0.25], [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 0.5, 0.5, 1]),
        ([3600], [0.5]),
    ],
)
def test_pauses_between_starts_double_up_to_a_minute_and_begin_anew_after_a_long_life(
    rehearse: Callable[..., Rehearsal], lives: list[float], waits: list[float]
) -> None:
    supervisor = rehearse(lives)
    # It was told to end during the last pause, so it started no more.
    assert supervisor.run() == 0
    assert (supervisor.waits, supervisor.record.starts) == (waits, len(lives))


def test_a_member_on_several_hosts_leaves_the_pauses_to_the_operator(
    rehearse: Callable[..., Rehearsal],
) -> None:
    supervisor = rehearse([0.25, 0.25], replace(POD, hosts=2))
    assert supervisor.run() == EXIT_FAILURE
    assert (supervisor.waits, supervisor.record.starts) == ([], 1)

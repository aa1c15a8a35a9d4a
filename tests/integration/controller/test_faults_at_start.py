"""Each request that an operator makes as it starts fails once: it starts all the same.

An error that may pass never ends the process, whichever part of it made the request. What ends it (answers
that kopf can't read) must be mended by the restart that follows in a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.faulty_proxy import Call, Fault, FaultyProxy, Harm
from fray_operator import process, source
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_thread import OperatorThread
from tests.integration.controller.stories import SUCCESS, Life, play

REQUEST_SECONDS = 15.0
HANG_SECONDS = 0.5
SILENCE_SECONDS = 1.0
LEASE_SECONDS = 30.0
"""It is renewed after a sixth, and lost after two thirds: longer than a busy machine stops a process."""
MOST_RESTARTS = 8


class EachOnce:
    """A rule by which each kind of request fails the first time."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self.suffered: set[str] = set()

    def __call__(self, call: Call) -> Fault | None:
        what = f"{call.method} {call.path} {call.watch} {'limit' in call.query}"
        if what in self.suffered or "events" in what or "/status" in what or call.method == "POST":
            return None
        self.suffered.add(what)
        return self._fault


def await_renewal(proxy: FaultyProxy, keep_alive: Callable[[], None]) -> None:
    """Wait until the lease was written twice: the first time fails."""

    def renewed() -> bool:
        keep_alive()
        return sum(call.what == "PUT leases" for call in proxy.calls) >= 2

    eventually(renewed, told=lambda: proxy.calls[-20:])


@pytest.mark.parametrize(
    ("fault", "fatal"),
    [
        (Fault(Harm.ANSWER, 429, "TooManyRequests"), False),
        (Fault(Harm.ANSWER, 500, "InternalError"), False),
        (Fault(Harm.ANSWER, 503, "ServiceUnavailable"), False),
        (Fault(Harm.ANSWER, 403, "Forbidden"), False),
        (Fault(Harm.CUT), False),
        (Fault(Harm.HANG), False),
        (Fault(Harm.CUT_IN_BODY), True),
        (Fault(Harm.ANSWER, 410, "Expired"), True),
    ],
    ids=str,
)
def test_an_operator_starts_although_each_of_its_requests_fails_once(  # noqa: PLR0917 - fixtures
    fault: Fault,
    fatal: bool,
    proxy: FaultyProxy,
    proxied: Path,
    hands: Hands,
    settings_for: SettingsFor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "START_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(process, "KINDS_SECONDS", 0.05)
    # Where none hangs, one that takes long is no fault.
    seconds = HANG_SECONDS if fault.harm is Harm.HANG else REQUEST_SECONDS
    monkeypatch.setattr(source, "REQUEST_SECONDS", seconds)
    monkeypatch.setattr(source, "WATCH_SILENCE_SECONDS", SILENCE_SECONDS)
    settings = settings_for(hands.namespace, lease_seconds=LEASE_SECONDS)
    rule = proxy.rule = EachOnce(fault)
    failures: list[BaseException | None] = []

    def start() -> OperatorThread:
        return OperatorThread(
            proxied, settings, request_seconds=seconds, watch_silence_seconds=SILENCE_SECONDS
        ).start()

    operator = start()

    def keep_alive() -> None:
        nonlocal operator
        if not operator.alive:
            failures.append(operator.failure)
            assert len(failures) <= MOST_RESTARTS, failures
            operator = start()

    try:
        play(hands, [Life(hands, "train", SUCCESS)], keep_alive=keep_alive)
        await_renewal(proxy, keep_alive)
    finally:
        operator.stop()
    whats = {" ".join(told.split(" ")[:1] + told.split("/")[-1:]) for told in rule.suffered}
    assert {"GET frayjobs True False", "GET jobsets True False", "GET pods True False"} <= whats, whats
    assert bool(failures) == fatal, failures

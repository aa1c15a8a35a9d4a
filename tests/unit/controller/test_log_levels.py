"""WARNING is for what somebody must look at: waiting, being cut off and coming second are none of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from fray.kube.api import Manifest
from fray.kube.errors import (
    ApiError,
    ForbiddenError,
    NotFoundError,
    ServerError,
    ThrottledError,
    UnreachableError,
)
from fray.kube.resources import EVENTS, FRAYJOBS, JOBSETS, Resource
from fray.testing.memory import MemoryApi, MemoryServer
from fray_operator.lease import Lease
from tests.unit.controller.an_hour import frayjob, reconcile_for_an_hour
from tests.unit.controller.test_informer import Script, follow
from tests.unit.controller.test_story_in_logs import logged
from tests.unit.controller.virtual_time import run

Levels = set[tuple[str, Any]]


def refuse(monkeypatch: pytest.MonkeyPatch, method: str, resource: Resource, error: ApiError) -> None:
    """Have the server answer these writes by an error, each time."""
    act: Callable[..., Manifest] = getattr(MemoryServer, method)

    def answer(server: MemoryServer, kind: Resource, *rest: Any) -> Manifest:
        if kind == resource:
            raise error
        return act(server, kind, *rest)

    monkeypatch.setattr(MemoryServer, method, answer)


def lines_of_an_hour(about: str) -> Levels:
    """Return level and attempt of the lines about the FrayJob `train` that hold this text."""
    with logged("DEBUG") as told:
        reconcile_for_an_hour([frayjob("train")], lambda *_: None)
    lines = [line for line in told() if about in line["message"]]
    assert lines
    assert {(line["namespace"], line["name"]) for line in lines} == {("default", "train")}
    return {(line["level"], line.get("attempt")) for line in lines}


def test_an_attempt_that_has_to_wait_is_no_warning_and_is_told_with_its_own_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = ForbiddenError("POST jobsets", 403, "Forbidden", "exceeded quota: team")
    refuse(monkeypatch, "create", JOBSETS, full)
    assert lines_of_an_hour("can't be started yet") == {("DEBUG", 1)}


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (NotFoundError("PUT frayjobs", 404, "NotFound", "gone"), "INFO"),
        (ThrottledError("PUT frayjobs", 429, "TooManyRequests", "later"), "INFO"),
        (ServerError("PUT frayjobs", 500, "InternalError", "broken"), "WARNING"),
        (ForbiddenError("PUT frayjobs", 403, "Forbidden", "no right"), "WARNING"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_pass_that_failed_is_a_warning_unless_nobody_is_at_fault(
    monkeypatch: pytest.MonkeyPatch, error: ApiError, level: str
) -> None:
    refuse(monkeypatch, "replace", FRAYJOBS, error)
    assert lines_of_an_hour("the pass failed") == {(level, None)}


@pytest.mark.parametrize(
    ("detail", "level"),
    [
        ("unable to create new content in namespace team because it is being terminated", "INFO"),
        ("may not create events", "WARNING"),
    ],
)
def test_an_event_that_is_refused_is_a_warning_unless_its_namespace_ends(
    monkeypatch: pytest.MonkeyPatch, detail: str, level: str
) -> None:
    refuse(monkeypatch, "create", EVENTS, ForbiddenError("POST events", 403, "Forbidden", detail))
    assert lines_of_an_hour("event AttemptStarted was refused") == {(level, 1)}


def silence() -> UnreachableError:
    return UnreachableError("WATCH pods", 0, "SocketTimeoutError", "Timeout on reading data from socket")


def levels_of(caplog: pytest.LogCaptureFixture, text: str) -> list[int]:
    return [record.levelno for record in caplog.records if text in record.getMessage()]


def test_a_watch_that_has_nothing_to_tell_is_cut_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fray_operator")
    follow(Script(*[step for _ in range(9) for step in ([[]], [90.0, silence()])]), seconds=1000)
    assert levels_of(caplog, "watch of pods ended") == [logging.DEBUG] * 9


def test_a_server_that_stays_away_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fray_operator")
    follow(Script([[]], [90.0, silence()], silence(), silence()), seconds=1000)
    assert levels_of(caplog, "watch of pods ended") == [logging.DEBUG, logging.WARNING, logging.WARNING]


def test_a_right_that_is_missing_is_a_warning_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fray_operator")
    follow(Script([[]], [90.0, ForbiddenError("WATCH pods", 403, "Forbidden", "no")]))
    assert levels_of(caplog, "watch of pods ended") == [logging.WARNING]


def test_coming_second_to_a_free_lease_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fray_operator")

    async def main() -> None:
        server = MemoryServer()
        api, other = MemoryApi(server), MemoryApi(server)
        held = lease(api, "first")
        await held.acquire()
        await held.release()

        async def overtake(call: Any) -> None:
            if call.method == "PUT":
                other.before = nothing
                await lease(api, "fast").acquire()

        async def nothing(_: Any) -> None:
            return None

        other.before = overtake
        task = asyncio.create_task(lease(other, "slow").acquire())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def lease(api: MemoryApi, identity: str) -> Lease:
        return Lease(api, namespace="default", name="leader", identity=identity, seconds=6.0)

    run(main())
    assert levels_of(caplog, "another process wrote the lease first") == [logging.INFO]
    assert all(record.levelno < logging.WARNING for record in caplog.records)

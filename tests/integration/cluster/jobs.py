"""Jobs of these tests, and what the operator would write about them."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from typing import Any

from fray.testing import build_end
from fray.types import Entrypoint, JobRequest
from tests.integration.controller.hands import now
from tests.integration.frayjobs import FrayJobs

__all__ = ["Background", "command", "decoded", "finish", "secrets_of", "set_status"]


def command(name: str = "train", **parts: Any) -> JobRequest:
    """A request for a program."""
    return JobRequest(name=name, entrypoint=Entrypoint.from_command(["train"]), **parts)


def set_status(frayjobs: FrayJobs, name: str, status: dict[str, Any]) -> None:
    """Write a job's status, as the operator does."""
    written = frayjobs.api.merge(frayjobs.path(name, "status"), {"status": status})
    assert written.ok, written.body


def finish(frayjobs: FrayJobs, name: str, ending: str = "Succeeded", **attempt: Any) -> None:
    """Tell that a job has ended; `attempt` is what its last attempt says."""
    reason = attempt.get("reason", "Completed")
    status = build_end(ending, reason, f"{name} told so", at=now(), attempt=attempt)
    set_status(frayjobs, name, status)


def secrets_of(frayjobs: FrayJobs) -> list[dict[str, Any]]:
    """All Secrets of the namespace."""
    answer = frayjobs.api.get(f"/api/v1/namespaces/{frayjobs.namespace}/secrets")
    assert answer.ok, answer.body
    found: list[dict[str, Any]] = answer.body["items"]
    return found


def decoded(secret: dict[str, Any]) -> dict[str, bytes]:
    """The contents of a Secret."""
    return {key: base64.b64decode(value) for key, value in secret["data"].items()}


class Background:
    """A call in a thread of its own, whose result or error can be had once it is over."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def result(self) -> Any:
        """Wait for it; return what it returned or raise what it raised."""
        self._thread.join(60)
        assert not self._thread.is_alive(), "it isn't over"
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._act()
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._error = error

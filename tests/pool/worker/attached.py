"""What tests attach to each worker, in the place of a job's context: the client itself."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from fray.runtime.pool.client.client import PoolClient
from fray.runtime.pool.messages.specs import Failed
from fray.runtime.pool.objects.reader import ObjectReader
from fray.runtime.pool.objects.values import decode
from fray.runtime.pool.worker.failures import build_failure

ATTACH = f"{__name__}:attach"
attached: ContextVar[tuple[str, PoolClient, ObjectReader] | None] = ContextVar("attached", default=None)


def attach(token: str, client: PoolClient, objects: ObjectReader) -> None:
    attached.set((token, client, objects))


def read_and_change() -> str | None:
    """Return the token of what is attached, and attach nothing."""
    before = attached.get()
    attached.set(None)
    return before[0] if before else None


def get(object_id: int) -> Any:
    """Wait for an object, as a task does that calls `get`."""
    here = attached.get()
    assert here is not None
    entry = here[1].refer(object_id)
    try:
        outcome = here[1].await_outcome(entry, None, "it")
    finally:
        here[1].drop(entry)
    if isinstance(outcome, Failed):
        raise build_failure(outcome)
    return decode(outcome if isinstance(outcome, bytes) else here[2].read(object_id, outcome.host))

"""From an outcome that failed to the exception that a client raises.

What the user's code raised comes encoded; what the pool itself has to tell comes as data. How exceptions
are encoded is in `payload.values.exceptions`, when something fails is decided by the state machine.
"""

from __future__ import annotations

import threading
from dataclasses import MISSING, fields
from typing import Any

from fray.errors import FrayError, pool
from fray.payload.values.exceptions import decode_error, raisable
from fray.runtime.pool.messages.specs import Failed

__all__ = ["build_failure", "no_thread"]


def no_thread(name: str, error: RuntimeError) -> Failed:
    """Return what becomes of a task or an actor for which no thread can be started."""
    details = (("reason", f"{error}; it has {threading.active_count()}"),)
    return Failed(b"", "ThreadStartError", name, (), details)


def build_failure(failed: Failed) -> BaseException:
    """Return the exception to raise for `failed`: a new one each time, since a raise adds a traceback."""
    if failed.data and not failed.kind:
        return raisable(decode_error(failed.data), failed.name)
    if failed.kind not in pool.__all__:
        raise LookupError(f"the head tells of a failure of unknown kind {failed.kind!r}")
    kind: type[FrayError] = getattr(pool, failed.kind)
    error = kind(**_arguments(kind, failed))
    if failed.data:
        error.__cause__ = decode_error(failed.data)
    return error


def _arguments(kind: type[FrayError], failed: Failed) -> dict[str, Any]:
    known: dict[str, Any] = dict(failed.details)
    known["story"] = failed.story
    first, *rest = fields(kind)
    known.setdefault(first.name, failed.name)
    named = {field.name: known[field.name] for field in (first, *rest) if field.name in known}
    missing = [field for field in rest if field.name not in named and field.default is MISSING]
    # A field that the head has nothing to say about is text: the last line of the story says most.
    return named | {field.name: failed.story[-1] if failed.story else "" for field in missing}

"""From an outcome that failed to the exception that a client raises.

What the user's code raised comes encoded; what the pool itself has to tell comes as data. How exceptions
are encoded is in `payload.values.exceptions`, when something fails is decided by the state machine.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from fray.errors import FrayError, pool
from fray.payload.values.exceptions import decode_error
from fray.runtime.pool.messages import Failed

__all__ = ["build_failure"]


def build_failure(failed: Failed) -> BaseException:
    """Return the exception to raise for `failed`: a new one each time, since a raise adds a traceback."""
    if failed.data:
        return decode_error(failed.data)
    if failed.kind not in pool.__all__:
        raise LookupError(f"the head tells of a failure of unknown kind {failed.kind!r}")
    kind: type[FrayError] = getattr(pool, failed.kind)
    return kind(**_arguments(kind, failed))


def _arguments(kind: type[FrayError], failed: Failed) -> dict[str, Any]:
    known: dict[str, Any] = dict(failed.details)
    known["story"] = failed.story
    first, *rest = fields(kind)
    known.setdefault(first.name, failed.name)
    named = {field.name: known[field.name] for field in (first, *rest) if field.name in known}
    missing = [field for field in rest if field.name not in named and field.default is MISSING]
    # A field that the head has nothing to say about is text: the last line of the story says most.
    return named | {field.name: failed.story[-1] if failed.story else "" for field in missing}

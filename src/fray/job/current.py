"""Which context the running code belongs to. What to do when there is none is decided in `defaults`."""

from __future__ import annotations

from contextvars import Context, ContextVar, Token, copy_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fray.job.context import JobContext

__all__ = ["current_context", "leave", "task_variables", "use"]

_current: ContextVar[JobContext | None] = ContextVar("fray_job_context", default=None)


def current_context() -> JobContext | None:
    """Return the context that was set here, or that runs this task; None if there is none."""
    return _current.get()


def use(context: JobContext | None) -> Token[JobContext | None]:
    """Make `context` the current one; the token undoes it with `leave`."""
    return _current.set(context)


def leave(token: Token[JobContext | None]) -> None:
    """Restore what was current before `use`."""
    _current.reset(token)


def task_variables(context: JobContext) -> Context:
    """Return a copy of the caller's context variables in which `context` is current."""
    variables = copy_context()
    variables.run(_current.set, context)
    return variables

"""Which engine the running code belongs to. What to do when there is none is decided in `defaults`."""

from __future__ import annotations

from contextvars import Context, ContextVar, Token, copy_context

from fray.job.engine import Engine

__all__ = ["current_engine", "leave", "task_variables", "use"]

_current: ContextVar[Engine | None] = ContextVar("fray_job_engine", default=None)


def current_engine() -> Engine | None:
    """Return the engine whose context was set here, or that runs this task; None if there is none."""
    return _current.get()


def use(engine: Engine | None) -> Token[Engine | None]:
    """Make `engine` the current one; the token undoes it with `leave`."""
    return _current.set(engine)


def leave(token: Token[Engine | None]) -> None:
    """Restore what was current before `use`."""
    _current.reset(token)


def task_variables(engine: Engine) -> Context:
    """Return a copy of the caller's context variables in which `engine` is current."""
    variables = copy_context()
    variables.run(_current.set, engine)
    return variables

"""JSON logs: one object a line, with the FrayJob, or what else, that it is about.

The job of a log line is taken from the task that writes it, so no function has to pass a logger on.
WARNING and above is what somebody who runs the operator must look at. What ends by itself, and what a
job's status shows its owner, is INFO when it is logged once and DEBUG when it is repeated.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pythonjsonlogger.json import JsonFormatter

__all__ = ["configure_logging", "job_context"]

_job: ContextVar[dict[str, Any] | None] = ContextVar("fray_job", default=None)


@contextmanager
def job_context(**fields: object) -> Iterator[None]:
    """Add fields (kind, namespace, name, uid, attempt) to every line logged within.

    One that is None is left out; a function is asked for its field's value whenever a line is written.
    """
    token = _job.set({**(_job.get() or {}), **fields})
    try:
        yield
    finally:
        _job.reset(token)


class _JobFields(logging.Filter):
    """Puts the fields of the current job on each record."""

    def filter(self, record: logging.LogRecord) -> bool:
        for key, field in (_job.get() or {}).items():
            value = field() if callable(field) else field
            if value is not None:
                setattr(record, f"job_{key}", value)
        return True


def configure_logging(level: str) -> None:
    """Log JSON to standard error, from this level on; libraries at WARNING at least."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s",
            rename_fields={
                "asctime": "time",
                "levelname": "level",
                "name": "logger",
                "job_kind": "kind",
                "job_namespace": "namespace",
                "job_name": "name",
                "job_uid": "uid",
                "job_attempt": "attempt",
            },
            rename_fields_keep_missing=False,
        )
    )
    handler.addFilter(_JobFields())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("fray_operator").setLevel(level)
    logging.getLogger("fray").setLevel(level)

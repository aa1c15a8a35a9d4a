"""JSON logs: one object a line, with the FrayJob that it is about.

The job of a log line is taken from the task that writes it, so no function has to pass a logger on.
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
    """Add fields (namespace, name, uid, attempt) to every line logged within."""
    token = _job.set({key: value for key, value in fields.items() if value is not None})
    try:
        yield
    finally:
        _job.reset(token)


class _JobFields(logging.Filter):
    """Puts the fields of the current job on each record."""

    def filter(self, record: logging.LogRecord) -> bool:
        for key, value in (_job.get() or {}).items():
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

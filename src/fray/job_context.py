"""The second API's names for contexts; they live in `fray.job`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fray.job import JobContext as ExecutionContext
from fray.job import SyncContext, ThreadContext, create_context, fray_job_ctx
from fray.job import ThreadContext as LocalJobContext
from fray.job.ray import RayContext
from fray.offered_names import find_offered

__all__ = [
    "ExecutionContext",
    "LocalJobContext",
    "RayContext",
    "SyncContext",
    "ThreadContext",
    "create_context",
    "fray_job_ctx",
]

if not TYPE_CHECKING:  # else mypy would find no misspelt name

    def __getattr__(name: str) -> Any:
        return find_offered(__name__, name, ())

"""The second API's names for contexts; they live in `fray.job`."""

from __future__ import annotations

from fray.job import JobContext as ExecutionContext
from fray.job import SyncContext, ThreadContext, create_context, fray_job_ctx
from fray.job.ray import RayContext

__all__ = ["ExecutionContext", "RayContext", "SyncContext", "ThreadContext", "create_context", "fray_job_ctx"]

"""The second API's names for contexts; they live in `fray.job`."""

from __future__ import annotations

from fray.job import JobContext as ExecutionContext
from fray.job import SyncContext, ThreadContext, create_context, fray_job_ctx
from fray.job import ThreadContext as LocalJobContext
from fray.job.dask import DaskContext
from fray.job.ray import RayContext
from fray.offered_names import offer_names

__all__ = [
    "DaskContext",
    "ExecutionContext",
    "LocalJobContext",
    "RayContext",
    "SyncContext",
    "ThreadContext",
    "create_context",
    "fray_job_ctx",
]

offer_names(__name__)

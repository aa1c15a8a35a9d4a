"""The name of a context that earlier APIs had: it can be imported, and says why it can't be used."""

from __future__ import annotations

from fray.job.defaults import create_job_ctx

__all__ = ["RayContext"]


class RayContext:
    """Tasks on Ray, which this version can't run: making one raises `ContextUnavailableError`."""

    def __init__(self, *args: object, **options: object) -> None:
        del args, options
        create_job_ctx("ray")

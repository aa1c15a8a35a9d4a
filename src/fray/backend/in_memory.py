"""The first API's names for what runs on this machine; they live in `fray.job` and `fray.legacy`."""

from __future__ import annotations

from fray.job_context import LocalJobContext
from fray.legacy.cluster_context import LocalClusterContext

__all__ = ["LocalClusterContext", "LocalJobContext"]

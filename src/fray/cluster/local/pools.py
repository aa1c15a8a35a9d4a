"""The pools that jobs of this machine have: each shows itself at a socket of its own."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Sequence
from pathlib import Path

from fray.errors import PoolNotShownError
from fray.runtime.pool.local_pool import METRICS_SOCKET
from fray.runtime.pool.objects.directories import list_directories
from fray.runtime.pool.view import PoolView
from fray.types import JobId
from fray.vocabulary import POOL_VIEW_PATH

__all__ = ["read_pool"]

ANSWER_SECONDS = 5.0


def read_pool(job_id: JobId, *, directories: Sequence[Path] | None = None) -> PoolView:
    """Return what the pool of a job's program has and does now; of several pools the first that is found.

    `directories` are those of this user's pools; None: all.

    Raises `PoolNotShownError` where no pool is this job's.
    """
    for directory in list_directories() if directories is None else directories:
        try:
            view = PoolView.from_json(_read_page(directory / METRICS_SOCKET))
        except (OSError, http.client.HTTPException, ValueError):
            continue  # it has ended, or its head is too busy; another pool may be the job's
        if view.job == job_id:
            return view
    raise PoolNotShownError(job_id, "none of the processes of this machine has a pool for it")


def _read_page(path: Path) -> bytes:
    connection = http.client.HTTPConnection("pool", timeout=ANSWER_SECONDS)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.settimeout(ANSWER_SECONDS)
        connection.sock.connect(str(path))
        connection.request("GET", POOL_VIEW_PATH)
        return connection.getresponse().read()
    finally:
        connection.close()

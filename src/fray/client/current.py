"""Which client the running code uses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from fray.client.client import Client

__all__ = ["current_client", "set_current_client"]

_current: ContextVar[Client | None] = ContextVar("fray_current_client", default=None)


def current_client() -> Client:
    """Return the client of `set_current_client`, else one of the current cluster; see `Client`.

    Inside a job that is the cluster of the job.

    Raises:
        ClusterSpecError: FRAY_CLIENT_SPEC or FRAY_CLUSTER_SPEC can't be read.
        ClusterUnavailableError: There is no such backend.
    """
    return _current.get() or Client()


@contextlib.contextmanager
def set_current_client(client: Client) -> Iterator[Client]:
    """Let `current_client` return this one within the block."""
    token = _current.set(client)
    try:
        yield client
    finally:
        _current.reset(token)

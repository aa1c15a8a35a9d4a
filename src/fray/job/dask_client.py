"""Clients of Dask that read results from workers themselves, and don't wait long for one that is gone."""

from __future__ import annotations

from typing import Any, Final

from distributed import Client

__all__ = ["hurry"]

WORKER_SECONDS: Final = 5.0
"""How long a worker may take to accept a connection of who reads its results."""


def hurry(client: Client) -> Client:
    """Let a client that reads from workers itself wait for one that is gone for `WORKER_SECONDS` only.

    Dask tries to connect for as long as to a scheduler that is still to come (30 s, in rank 0's pod 120 s),
    and only then asks the scheduler, which knows where the values are or makes them again.
    """
    pool: Any = client.rpc
    known: Any = client.scheduler
    connect, scheduler = pool.connect, known.address

    async def connect_soon(address: str, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - as Dask's
        return await connect(address, timeout if address == scheduler else WORKER_SECONDS)

    pool.connect = connect_soon  # of this client alone
    return client

"""Pools on two hosts for the suite: one for each number of workers, for as long as the tests run."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from fray.errors import ActorNotFoundError
from fray.job import JobContext
from fray.job.checks import check_count
from fray.job.pool import join_pool
from tests.pool.clients.pods import running_pods
from tests.pool.transport.certificates import write_key

__all__ = ["join_pool_of_hosts", "start_pool_of_hosts"]


def start_pool_of_hosts(stack: contextlib.ExitStack, workers: int) -> dict[str, str]:
    """Start a pool that ends with the stack; return the variables by which a process joins it.

    Its head and its hosts are processes as in pods, and speak TLS. One worker has one host, more have two.
    """
    check_count("max_workers", workers, 1)
    key = write_key(Path(stack.enter_context(tempfile.TemporaryDirectory())))
    pods = stack.enter_context(running_pods(key))
    for share in (workers - workers // 2, workers // 2):
        if share:
            pods.start_host(workers=share)
    return pods.environ


def join_pool_of_hosts(environ: Mapping[str, str]) -> JobContext:
    """Join a pool, and end the actors that earlier tests have left there: a name keeps them."""
    context = join_pool(environ)
    while names := _known_names(context):
        for name in names:
            context.kill(context.get_actor(name))
    return context


def _known_names(context: JobContext) -> tuple[str, ...]:
    with pytest.raises(ActorNotFoundError) as absent:
        context.get_actor("nobody has this name")
    return absent.value.known

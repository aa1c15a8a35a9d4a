"""Which context code gets that doesn't make one itself, and contexts by the name of their kind."""

from __future__ import annotations

import contextlib
import copyreg
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from fray.errors import UnknownContextError
from fray.job.context import JobContext, context_of, find_context
from fray.job.current import current_engine, leave, use
from fray.job.inline import SyncContext
from fray.job.threads import ThreadContext
from fray.vocabulary import ENV_POOL_HEAD, ENV_WORKERS_ENGINE

__all__ = [
    "attach_process",
    "clear_job_context",
    "create_context",
    "create_job_ctx",
    "fray_default_job_ctx",
    "fray_job_ctx",
    "get_default_job_ctx",
    "get_job_context",
    "set_job_context",
]

KINDS = ("auto", "sync", "threadpool", "pool", "ray", "dask")
ENGINES = {"ray": "fray.job.ray", "dask": "fray.job.dask"}
"""Kinds whose engine is a package of its own -> the module that starts or joins one, once it is asked for."""

_lock = threading.Lock()
_joining = threading.Lock()
_pool: tuple[int, JobContext] | None = None
"""The process id, and the context of the pool that this process has joined."""
_process: tuple[int, JobContext, bool] | None = None
"""The process id, its context, and whether the context was attached (else: made here by default)."""


def get_job_context() -> JobContext:
    """Return the context of the running code.

    In a task it is the one that runs the task; else the one that was set; else that of this process,
    which is made when first asked for (`create_job_ctx("auto")`) and then stays.
    """
    engine = current_engine()
    return _process_context() if engine is None else context_of(engine)


def get_default_job_ctx() -> JobContext:
    """Return the context of the running code: another name of `get_job_context`."""
    return get_job_context()


def set_job_context(context: JobContext) -> None:
    """Make `context` the one that `get_job_context` returns from here on in this thread of control."""
    use(context._engine)


def clear_job_context() -> None:
    """Undo `set_job_context`: the context of the process counts again."""
    use(None)


@contextlib.contextmanager
def fray_default_job_ctx(context: JobContext) -> Iterator[JobContext]:
    """Make `context` the one that `get_job_context` returns within the block. It is not shut down."""
    token = use(context._engine)
    try:
        yield context
    finally:
        leave(token)


def attach_process(context: JobContext) -> None:
    """Make `context` that of this process, for every thread: what a worker does when it starts."""
    global _process  # noqa: PLW0603 - one context a process is the promise
    with _lock:
        _process = (os.getpid(), context, True)


def create_job_ctx(
    context_type: str = "auto",
    *,
    max_workers: int | None = None,
    resources: Mapping[str, float] | None = None,
    memory: int | None = None,
    head: str = "thread",
    **options: Any,
) -> JobContext:
    """Return a context of a kind: "sync", "threadpool", "pool", "ray", "dask", or "auto".

    "auto" is the context that this process is attached to, if it is a worker of a job; else one on the Ray
    or Dask cluster that this process is a client of; else that of the pool that the job's processes share,
    if it has one (`FRAY_POOL_HEAD` names it); else a new "threadpool": what costs nothing to start and needs
    nothing to be picklable. `max_workers` counts threads or processes (None: one for each CPU). A "pool" has
    further `resources`, by name, and `memory` for objects, in bytes (None: 30 % of the machine's); its `head`
    is a "thread" of this process or, so that workers go on while this process holds the GIL, a "process".
    "ray" and "dask" take the first three, `address` and more (docs/contexts.md). All that means nothing to
    the contexts of one process.

    Raises:
        UnknownContextError: there is no such kind.
        ContextUnavailableError: the kind can't be made here.
    """
    if context_type not in KINDS:
        raise UnknownContextError(context_type, KINDS)
    if context_type == "sync":
        return SyncContext()
    if context_type == "pool":
        from fray.job.pool import start_pool  # noqa: PLC0415 - asyncio and more, which few programs need

        return start_pool(max_workers, resources=resources, memory=memory, head=head)
    if context_type in ENGINES:
        made: JobContext = import_module(ENGINES[context_type]).start(
            max_workers, resources=resources, memory=memory, **options
        )
        return made
    attached = (_attached() or _joined()) if context_type == "auto" else None
    if attached is not None:
        return attached
    if context_type == "auto" and os.environ.get(ENV_POOL_HEAD):  # noqa: TID251 - the entry of the pool
        return _join_pool()
    return ThreadContext(max_workers)


def _join_pool() -> JobContext:
    """Return this process's part of its job's pool, of the engine of its workers; it joins once."""
    global _pool  # noqa: PLW0603 - a process is one client of its pool
    with _joining:
        if _pool is None or _pool[0] != os.getpid() or _pool[1].closed:
            environ = os.environ  # noqa: TID251 - the entry of the pool
            kind = ENGINES.get(environ.get(ENV_WORKERS_ENGINE, ""), "fray.job.pool")
            _pool = (os.getpid(), import_module(kind).join_pool(environ))
        return _pool[1]


def create_context(kind: str = "auto", *, context_type: str | None = None, **options: Any) -> JobContext:
    """Return a context of a kind, also spelled `context_type`; see `create_job_ctx`, the newer name."""
    return create_job_ctx(kind if context_type is None else context_type, **options)


def fray_job_ctx(context_type: str = "auto", **options: Any) -> JobContext:
    """Return a context of a kind; see `create_job_ctx`, of which this is an older name."""
    return create_job_ctx(context_type, **options)


def _attached() -> JobContext | None:
    if _process is None:
        return None
    pid, context, attached = _process
    return context if attached and pid == os.getpid() else None


def _joined() -> JobContext | None:
    """Return a context on the engine that this process has a client of."""
    for kind, module in ENGINES.items():
        if kind in sys.modules and (engine := import_module(module)).is_joined():
            joined: JobContext = engine.join()
            return joined
    return None


def _process_context() -> JobContext:
    global _process  # noqa: PLW0603 - see attach_process
    with _lock:
        if _process is not None:
            pid, context, _ = _process
            # A forked child has its parent's contexts, but none of their threads.
            if pid == os.getpid() and not context.closed:
                return context
        made = create_job_ctx("auto")
        _process = (os.getpid(), made, False)
        return made


def _reduce_context(context: JobContext) -> tuple[Any, ...]:
    return _read_context, (context._engine.token,)


def _read_context(token: str) -> JobContext:
    found = find_context(token)
    return get_job_context() if found is None else found


copyreg.pickle(JobContext, _reduce_context)

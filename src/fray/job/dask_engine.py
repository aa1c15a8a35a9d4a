"""Tasks and actors on a Dask cluster: the same engine in the process that made the context, and in workers.

Dask decides which worker runs a task and keeps its result; `dask_host` runs it there. What differs from other
engines stands in docs/contexts.md.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from distributed import Client

from fray.errors import (
    ActorDiedError,
    TaskCancelledError,
    UnschedulableError,
)
from fray.job.calls import Call
from fray.job.cells import await_ready
from fray.job.dask_actors import ACTORS, TASKS, DaskActors, Work, check_features, counted_resources
from fray.job.dask_refs import AnyEntry, has_failed
from fray.job.dask_values import (
    CallEntry,
    DaskEntry,
    Outcome,
    StreamEntry,
    TaskSpec,
    read_outcome,
)
from fray.job.engine import END, LATE, ContextStats, time_left
from fray.job.engine_pods import OFFERS, holds
from fray.job.numbered_refs import only_of, register_engine
from fray.job.options import TaskOptions
from fray.job.progress import FutureState
from fray.job.timeline import TaskRun
from fray.job.traits import Feature
from fray.job.workers import blocking
from fray.runtime.pool.objects.functions import encode_function
from fray.runtime.pool.objects.values import INLINE_LIMIT, encode

__all__ = ["DaskEngine", "Owner"]

_NOTHING: AbstractContextManager[None] = nullcontext()


class Owner(Protocol):
    """What the maker of a context has, and workers haven't."""

    def close(self) -> None:
        """Let go of the cluster, and end it if it is the context's own."""


class DaskEngine(DaskActors):
    """Runs tasks and actors on a Dask cluster; see `Engine`.

    Parameters: this process's `client`; the `token` of the context; the `work`; `roles`: there are workers
    for tasks and others for actors; the `owner` where the context was made, so that `shutdown` ends it there.
    """

    def __init__(
        self, client: Client, token: str, work: Work, *, roles: bool = False, owner: Owner | None = None
    ) -> None:
        super().__init__(client, token, work, roles=roles)
        self._owner = owner
        self._fitting: set[tuple[tuple[str, float], ...]] = set()
        register_engine(self)

    # --- values ---------------------------------------------------------------------------------------------

    def take(self, ref: Any, deadline: float | None) -> Any:
        """Return the value of a ref; see `Engine`."""
        entry: DaskEntry = ref._entry
        outcome = entry.take(deadline)
        if outcome is None:
            outcome = entry.outcome or self._fetch(entry, deadline)
        return LATE if outcome is LATE else read_outcome(outcome, entry.name)

    def next_item(self, ref: Any, deadline: float | None) -> Any:
        """Return the next item of a generator; see `Engine`."""
        item = ref._entry.take(deadline)
        if item is LATE or item is END:
            return item
        if item.data:
            return read_outcome(item, ref._entry.name)
        outcome = self._fetch(item.held[0], None)  # a large one, which stayed where it was made
        return read_outcome(outcome, ref._entry.name)

    def _fetch(self, entry: DaskEntry, deadline: float | None) -> Any:
        future = entry.future
        try:
            with blocking() if future.status != "finished" else _NOTHING:
                outcome: Outcome = future.result(timeout=time_left(deadline))
        except TimeoutError:
            return LATE
        except (CancelledError, asyncio.CancelledError) as error:
            raise self._lost(entry) from error
        except Exception as error:
            raise self._failed(entry, error) from error
        if len(outcome.data) <= INLINE_LIMIT:
            entry.outcome = outcome
        return outcome

    def prefetch(self, entries: Sequence[Any], deadline: float | None) -> None:
        """Wait for all of the values, and bring them here at once."""
        if not await_ready(entries, deadline):
            return
        absent = {
            entry.number: entry
            for entry in entries
            if entry.outcome is None and entry.future is not None and entry.future.status == "finished"
        }
        try:
            found = self._client.gather({number: entry.future for number, entry in absent.items()})
        except (Exception, asyncio.CancelledError):  # noqa: BLE001 - `take` tells of the one that failed
            return
        for number, outcome in found.items():
            absent[number].outcome = outcome

    def state_of(self, entry: Any, *, whole: bool) -> FutureState:
        """Return how far an entry is; see `Engine`."""
        if isinstance(entry, StreamEntry):
            if not (entry.ended if whole else entry.ready):
                return "pending"
            return "failed" if entry.error is not None else "ready"
        if not entry.ready:
            return "pending"
        return "failed" if entry.error is not None or has_failed(entry) else "ready"

    def release(self, entry: Any) -> None:
        """Let a generator end that nobody reads; other entries go with their last ref."""
        if isinstance(entry, StreamEntry) and not entry.ended:
            entry.abandon()
            self._leave(entry, "cancelled")
            self._soon(self._end_stream, entry)

    # --- tasks ----------------------------------------------------------------------------------------------

    def submit(self, call: Call, options: TaskOptions, *, streaming: bool) -> AnyEntry:
        """Start a task; see `Engine`."""
        self._check_open()
        check_features(
            {
                Feature.TASK_ENV: options.env,
                Feature.RUNTIME_ENV: options.runtime_env,
                Feature.MAX_CALLS: options.max_calls,
            }
        )
        with only_of(self):
            function = encode_function(call.function)
            encoded, needed = self._encode(call.args, call.kwargs, function)
            plain = encode(replace(options, name=options.name or call.name, resources=None))
        number, name = self.new_number(), options.name or call.name
        entry: AnyEntry = StreamEntry(number, name, None) if streaming else DaskEntry(number, name)
        task = TaskSpec(
            token=self.token,
            roles=self.roles,
            number=number,
            name=name,
            function=function.blob,
            args=encoded.args,
            options=plain.to_bytes(),
            holds=tuple(each.number for each in needed),
            reader=self._client.id if streaming else "",
        )
        self._enter(entry, needed)
        resources = counted_resources(options.resources)
        if not self._fits(resources):
            entry.fail(self._unschedulable(name, resources))
            self._leave(entry, "failed")
            return entry
        if streaming:
            self._soon(self._receive, entry)
        if self.roles:
            resources |= {TASKS: 1}
        start = partial(
            self._start, entry, self._work.run_task, pickle.dumps(tuple(task)), encoded.deps, resources
        )
        self._once_published(entry, needed, start)
        return entry

    def cancel(self, entry: Any, *, force: bool) -> None:  # noqa: ARG002 - threads can't be ended
        """Let a task yield `TaskCancelledError`, here and for all who have its ref; see `Engine`."""
        if _has_ended(entry):
            return
        self._leave(entry, "cancelled")
        entry.fail(TaskCancelledError(entry.name))
        if isinstance(entry, StreamEntry):
            self._soon(self._end_stream, entry)
        elif isinstance(entry, CallEntry):
            self._soon(self._tell_actor, entry.actor, "cancel", entry.number)
        elif entry.future is not None:
            # One after the other, so that it begins nowhere once this returns.
            with suppress(OSError):
                self._client.sync(self._cancel, entry)
                self._client.run(self._work.cancel_task, self.token, entry.number, on_error="ignore")

    def _fits(self, resources: Mapping[str, float]) -> bool:
        shape = tuple(sorted(resources.items()))
        if not shape or shape in self._fitting:
            return True
        offers, in_pods = self._offers()
        if any(holds(each, resources) for each in offers):
            self._fitting.add(shape)
            return True
        return in_pods and not offers  # the first worker will say what it has

    def _offers(self) -> tuple[list[Mapping[str, float]], bool]:
        """Return what workers have that are there or may come, and whether they are those of a job."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        to_come = self._client.get_metadata(OFFERS, None)
        return [*(each["resources"] for each in workers), *(to_come or ())], to_come is not None

    def _unschedulable(self, name: str, resources: Mapping[str, float]) -> UnschedulableError:
        offered = [{key: one for key, one in each.items() if key not in (TASKS, ACTORS)}
                   for each in self._offers()[0]]  # fmt: skip
        most = max(offered, key=len, default={})
        return UnschedulableError(name, _shown(resources), _shown(most) or "none")

    # --- the engine itself ----------------------------------------------------------------------------------

    def stats(self) -> ContextStats:
        """Return what it has, and what became of what this process has submitted."""
        self._check_open()
        running = self.count_running()
        with self._lock:
            waiting = max(0, len(self._unfinished) - running)
            ended = dict(self._ended)
        workers = len(self._client.scheduler_info(n_workers=-1)["workers"])
        counts = {kind: ended.get(kind, 0) for kind in ("succeeded", "failed", "cancelled")}
        return ContextStats(
            workers=workers, waiting=waiting, running=running, actors=len(self._actors), **counts
        )

    def runs(self) -> list[TaskRun]:
        """Return the last runs on all workers; see `Engine`."""
        self._check_open()
        found = self._client.run(self._work.list_runs, self.token)
        return [
            replace(run, row=(1_000 * index + run.row[0], f"{address} {run.row[1]}"))
            for index, (address, runs) in enumerate(sorted(found.items()))
            for run in runs
        ]

    def count_running(self) -> int:
        """Return how many of this process's tasks and calls run now."""
        if not self._unfinished or self._closed:
            return 0
        running: int = sum(self._client.run(self._work.count_running, self.token).values())
        return min(len(self._unfinished), running)

    def shutdown(self) -> None:
        """End all tasks and actors; see `Engine`. In a worker it does nothing."""
        if self._owner is None:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            left = list(self._unfinished.values())
            actors = list(self._actors)
        for actor in actors:
            actor.died = actor.died or ActorDiedError(actor.name, "its context was shut down")
        for entry in left:
            self._leave(entry, "cancelled")
            target = entry.actor if isinstance(entry, StreamEntry | CallEntry) else None
            entry.fail(target.died if target and target.died else TaskCancelledError(entry.name))
        self._helpers.close()
        self._owner.close()


def _has_ended(entry: AnyEntry) -> bool:
    return entry.ended if isinstance(entry, StreamEntry) else entry.ready


def _shown(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {amount:g}" for name, amount in resources.items())

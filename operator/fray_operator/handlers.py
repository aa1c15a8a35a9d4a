"""kopf as the watcher of FrayJobs: each event only makes a key due.

Nothing else of kopf is used: change handlers, daemons and timers would write annotations and finalizers
to users' objects, and its events are not retried, which doesn't matter to a queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import kopf

from fray.kube.client import (
    REQUEST_SECONDS,
    WATCH_GRACE_SECONDS,
    WATCH_SECONDS,
    WATCH_SILENCE_SECONDS,
)
from fray.vocabulary import FRAYJOB_PLURAL, GROUP, VERSION
from fray_operator.informer import JobKey
from fray_operator.jobs import JobStore
from fray_operator.queue import WorkQueue
from fray_operator.settings import OperatorSettings

__all__ = ["FrayJobWatch"]

LISTED_AT_ONCE = 10
"""FrayJobs to a page of kopf's list."""
LISTING_SECONDS = 5.0
"""After how long without a listed job the next one is of another list."""


class FrayJobWatch:
    """Runs kopf, and puts what it sees into the store and its key on the queue."""

    def __init__(
        self,
        jobs: JobStore,
        queue: WorkQueue[JobKey],
        settings: OperatorSettings,
        *,
        claim_signals: Callable[[], None],
    ) -> None:
        self._jobs, self._queue, self._settings = jobs, queue, settings
        self._claim_signals = claim_signals
        self._loop = asyncio.get_running_loop()
        self._heard_at: float | None = None
        self._listed_at: float | None = None
        self._changed_at: float | None = None
        self.begun = asyncio.Event()
        """Set once kopf has asked the server for FrayJobs."""
        self._registry = kopf.OperatorRegistry()
        kopf.on.login(registry=self._registry)(self._log_in)
        kopf.on.event(GROUP, VERSION, FRAYJOB_PLURAL, registry=self._registry)(self._on_event)

    @property
    def silent_seconds(self) -> float:
        """How long kopf has neither asked for FrayJobs nor seen one; it asks anew whenever a watch ends."""
        return float("inf") if self._heard_at is None else self._loop.time() - self._heard_at

    async def run(self) -> None:
        """Watch until cancelled; raises what kopf gives up on.

        As it starts, kopf takes SIGTERM and SIGINT for itself and would end in its own time; `claim_signals`
        is called right after, to take them back.
        """
        logging.getLogger("kopf").setLevel(logging.WARNING)
        ours = asyncio.all_tasks()
        # Or kopf asks the system for the user's name, which a container's user has none of.
        identity: Any = self._settings.pod_name
        tasks = await kopf.spawn_tasks(
            registry=self._registry,
            settings=_build_settings(on_request=self._hear),
            identity=identity,
            standalone=True,
            clusterwide=not self._settings.namespaces,
            namespaces=self._settings.namespaces,
        )
        self._claim_signals()
        # At its end kopf cancels every task but those it is told of.
        await kopf.run_tasks(tasks, ignored=ours)

    async def _on_event(self, event: Mapping[str, Any], **_: Any) -> None:
        self._hear()
        manifest = dict(event["object"])
        metadata = manifest["metadata"]
        key = metadata["namespace"], metadata["name"]
        if event["type"] is None:
            self._note_listing()
        else:
            self._changed_at = self._loop.time()
        if event["type"] == "DELETED":
            self._jobs.discard(key, uid=metadata["uid"])
            self._queue.forget(key)
            # One more pass, for events of it that could not be sent yet, and for what nobody collects.
            self._queue.add(key)
        elif self._jobs.put(manifest):
            self._queue.add(key)

    def _log_in(self, **kwargs: Any) -> kopf.ConnectionInfo | None:
        """Reach the server where all other requests go: kopf's own address for pods needs DNS."""
        account = kopf.login_with_service_account(**kwargs)
        if account is None:
            return kopf.login_with_kubeconfig(**kwargs)
        return replace(account, server=self._settings.api_server or account.server)

    def _note_listing(self) -> None:
        """Take note of a job that was listed, rather than having changed.

        What is listed before anything else was told is there at the start: no deletion was missed. Later a
        list begins after a change, or after a while; a long one may count as several, which does no harm.
        """
        now, listed_at, changed_at = self._loop.time(), self._listed_at, self._changed_at
        self._listed_at = now
        if listed_at is None:
            anew = changed_at is not None
        else:
            anew = now >= listed_at + LISTING_SECONDS or (changed_at is not None and changed_at >= listed_at)
        if anew:
            self._jobs.note_listing()

    def _hear(self) -> None:
        self._heard_at = self._loop.time()
        self.begun.set()


def _build_settings(*, on_request: Callable[[], None]) -> kopf.OperatorSettings:
    """Return kopf's settings; `on_request` is called for each list and watch of FrayJobs that it begins."""

    def note(resource: Any) -> bool:
        if (resource.group, resource.plural) == (GROUP, FRAYJOB_PLURAL):
            on_request()
        return False

    settings = kopf.OperatorSettings()
    # kopf tells nobody that it watches, but asks before each request which label selectors apply: none.
    settings.watching.label_selectors[note] = ""
    settings.posting.enabled = False
    # The process exits until the CRD exists, so there is nothing to scan for; scanning needs cluster rights.
    settings.scanning.disabled = True
    # Each object seen has a task for so long, which holds it; thousands arrive when the process starts.
    settings.queueing.idle_timeout = 0.05
    # kopf reads a page at once, and an object may be as large as etcd takes: 1.5 MiB.
    settings.watching.chunk_size = LISTED_AT_ONCE
    # Nobody asks what has changed about a job, and to find out costs as much as all else about an event.
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.persistence.progress_storage = _NoProgress()
    # At the end nothing is worked on any more: what is left of kopf's events needs no time.
    settings.queueing.exit_timeout = 0.2
    # kopf would kill the whole process some time after its end; in tests it isn't the whole process.
    settings.process.ultimate_exiting_timeout = None
    settings.networking.request_timeout = REQUEST_SECONDS
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.client_timeout = WATCH_SECONDS + WATCH_GRACE_SECONDS
    settings.watching.inactivity_timeout = WATCH_SILENCE_SECONDS
    return settings


class _NoDiffs(kopf.DiffBaseStorage):
    """Takes nothing of an object to compare it by: kopf would copy all of it at each event."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class _NoProgress(kopf.ProgressStorage):
    """Keeps nothing of the progress of handlers: it is told of those of changes only."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: Any) -> Any:
        return essence

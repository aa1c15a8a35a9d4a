"""Watching for as long as it takes: whatever becomes of the connection, an observer learns the current state.

An API server that restarts, a watch that ends, is cut, falls silent or is too old is no end: it goes on from
the last version that was seen, or from a new list. There is no time limit here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, cast

from fray.backoff import Backoff
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import LONGEST_ASKED
from fray.kube.api import Manifest, WatchEvent
from fray.kube.errors import ExpiredError, ServerError, ThrottledError, UnreachableError
from fray.kube.resources import Resource

__all__ = ["Observer", "Subject", "list_subject", "watch_until_complete"]

logger = logging.getLogger(__name__)

BACKOFF = Backoff(0.2, 10.0, longest_asked=LONGEST_ASKED)
SUFFICIENT_SECONDS = 5.0
"""A watch that held for so long was in order; one that ends sooner is followed by a longer pause."""


@dataclass(frozen=True)
class Subject:
    """What is watched: objects of a kind in the jobs' namespace."""

    resource: Resource
    labels: str = ""
    fields: str = ""


class Observer(Protocol):
    """Takes lists and events.

    `version` is what to watch from: the list and the events set it, and None lists anew.
    """

    version: str | None

    @property
    def complete(self) -> bool:
        """Whether enough was seen."""
        ...

    def take_list(self, objects: Sequence[Manifest], version: str) -> None:
        """Note all objects as they are."""
        ...

    def take_event(self, event: WatchEvent) -> None:
        """Note a change, or a bookmark."""
        ...


async def list_subject(access: Access, subject: Subject, observer: Observer) -> None:
    """Give an observer the current objects; raises `ApiError`."""
    objects: list[Manifest] = []
    version = ""
    pages = access.api.list_pages(
        subject.resource, namespace=access.namespace, labels=subject.labels, fields=subject.fields
    )
    async for page in pages:
        objects += page.items
        version = page.resource_version
    observer.take_list(objects, version)


async def watch_until_complete(access: Access, subject: Subject, observer: Observer) -> None:
    """Tell an observer of changes until it is complete.

    Raises what the observer raises, and the `ApiError` of a missing right.
    """
    time = asyncio.get_running_loop().time
    rounds = 0
    while not observer.complete:
        begun, asked = time(), None
        try:
            await _watch(access, subject, observer)
        except ExpiredError:
            observer.version = None
        except (ServerError, ThrottledError, UnreachableError) as error:
            asked = error.retry_after_seconds
            if not rounds:
                logger.warning("%s can't be watched; trying again: %s", subject.resource, error)
        if observer.complete:
            return
        if time() - begun >= SUFFICIENT_SECONDS:
            rounds = 0
        rounds += 1
        await asyncio.sleep(BACKOFF.pause(rounds, asked))


async def _watch(access: Access, subject: Subject, observer: Observer) -> None:
    if observer.version is None:
        await list_subject(access, subject, observer)
    if observer.complete or observer.version is None:
        return
    events = access.api.watch(
        subject.resource,
        resource_version=observer.version,
        namespace=access.namespace,
        labels=subject.labels,
        fields=subject.fields,
    )
    async with aclosing(cast("AsyncGenerator[WatchEvent]", events)) as open_events:
        async for event in open_events:
            observer.take_event(event)
            if observer.complete:
                return

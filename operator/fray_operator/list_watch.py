"""Following a collection of the API server: list, watch, and list again when the watch can't go on.

What is kept of the objects is for subclasses to decide.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from abc import ABC, abstractmethod

from fray.backoff import Backoff
from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError, ExpiredError, UnreachableError
from fray.kube.resources import Resource

__all__ = ["PAGE", "ListWatch", "Place", "find_controller", "is_controlled_by", "place_of"]

logger = logging.getLogger(__name__)

PAGE = 100
"""Objects to a page of a list. What one takes while it is read, the process doesn't give back."""
BACKOFF = Backoff(0.2, 30.0)
SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner was not ended by the server's timeout."""

Place = tuple[str, str]
"""Namespace and name of any object; the namespace is empty where the resource has none."""


class ListWatch(ABC):
    """All objects of a resource with these labels, in one namespace or in all, for as long as `run` runs."""

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        metadata_only: bool = False,
    ) -> None:
        self._api, self.resource, self._namespace = api, resource, namespace
        self._labels, self._metadata_only = labels, metadata_only
        self._loop = asyncio.get_running_loop()
        self._heard_at: float | None = None
        self._failures = 0
        self._listed_version = ""
        """The version up to which every change is known."""
        self.synced = asyncio.Event()

    @abstractmethod
    def _places(self) -> set[Place]:
        """Return where the objects are that are kept."""

    @abstractmethod
    def _store(self, manifest: Manifest) -> bool:
        """Keep an object as it is now; return whether it is one to be kept."""

    @abstractmethod
    def _lose(self, place: Place) -> None:
        """Drop an object that a list lacks."""

    @abstractmethod
    def _end(self, last: Manifest) -> None:
        """Drop an object that was deleted; this is its last state."""

    @property
    def silent_seconds(self) -> float:
        """How long nothing, not even a bookmark, was heard from the server."""
        return float("inf") if self._heard_at is None else self._loop.time() - self._heard_at

    async def run(self) -> None:
        """List and watch for ever; errors are logged and tried again."""
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._watch(version)
            except ExpiredError as expired:
                logger.info("watch of %s is too old; listing again", self.resource)
                await self._pause(expired.retry_after_seconds)
            except ApiError as error:
                self._log_end(error)
                await self._pause(error.retry_after_seconds)

    def _log_end(self, error: ApiError) -> None:
        # A silent watch is cut by a proxy on the way, or by this process: that is routine. A warning is for
        # what asking again at once doesn't mend.
        routine = isinstance(error, UnreachableError) and not self._failures
        level = logging.DEBUG if routine else logging.WARNING
        logger.log(level, "watch of %s ended; listing again: %s", self.resource, error)

    async def _pause(self, at_least: float | None = None) -> None:
        """Wait after a failure, longer after each in a row."""
        self._failures += 1
        # Spread: after an outage not all watchers must come back in the same instant.
        pause = BACKOFF.pause(self._failures) * random.uniform(0.5, 1.0)
        await asyncio.sleep(max(pause, at_least or 0.0))

    async def _list(self) -> str:
        # What is written while the list is read may be missing from it, and is not gone.
        known, seen = self._places(), set[Place]()
        version = ""
        async for page in self._api.list_pages(
            self.resource,
            namespace=self._namespace,
            labels=self._labels,
            limit=PAGE,
            metadata_only=self._metadata_only,
        ):
            for item in page.items:
                if self._store(item):
                    seen.add(place_of(item))
            version = page.resource_version
            self._heard_at = self._loop.time()
        for place in sorted(known - seen):
            self._lose(place)
        self._listed_version = version
        self.synced.set()
        return version

    async def _watch(self, version: str) -> str:
        """Follow changes until the server ends the watch; return the version to go on from."""
        events = self._api.watch(
            self.resource,
            resource_version=version,
            namespace=self._namespace,
            labels=self._labels,
            metadata_only=self._metadata_only,
        )
        started = self._loop.time()
        try:
            async for event in events:
                self._heard_at = self._loop.time()
                self._failures = 0
                version = event.object["metadata"]["resourceVersion"]
                if event.type == "DELETED":
                    self._end(event.object)
                elif event.type != "BOOKMARK":
                    self._store(event.object)
                self._listed_version = version
        finally:
            if self._loop.time() - started >= BACKOFF.longest:
                # Nothing to tell, and then cut, as idle connections are: no failure in a row.
                self._failures = 0
        if self._loop.time() - started < SHORT_WATCH_SECONDS:
            # Somebody on the way ends watches at once; asking again at once would be a storm.
            await self._pause()
        self._heard_at = self._loop.time()
        return version


def place_of(manifest: Manifest) -> Place:
    """Return where an object is; thousands of places share a few namespaces."""
    metadata = manifest["metadata"]
    return sys.intern(metadata.get("namespace", "")), metadata["name"]


def find_controller(manifest: Manifest) -> Manifest | None:
    """Return the reference to an object's controller, None where it has none.

    The API server allows no second one:
    https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents
    """
    owners = manifest["metadata"].get("ownerReferences", [])
    return next((owner for owner in owners if owner.get("controller")), None)


def is_controlled_by(manifest: Manifest, uid: str | None) -> bool:
    """Return whether the object with this uid controls this one, whatever its labels say."""
    controller = find_controller(manifest)
    return controller is not None and controller["uid"] == uid

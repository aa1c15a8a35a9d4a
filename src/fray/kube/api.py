"""What Fray does with an API server: the seam between decisions' shells and HTTP.

The official client stands behind it in production, the in-memory server of `fray.testing` in unit tests;
both are held to the same contract tests. Objects are plain manifests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from fray.kube.errors import ConflictError, NotFoundError
from fray.kube.objects import Manifest, Page, Propagation, WatchEvent
from fray.kube.request import (
    Request,
    build_create,
    build_delete,
    build_get,
    build_list,
    build_replace,
    build_watch,
    sending,
)

__all__ = ["KubeApi", "Manifest", "Page", "Propagation", "WatchEvent"]


class KubeApi(ABC):
    """Typed access to objects; every method raises `fray.kube.errors.ApiError` when refused.

    What is asked stands in `fray.kube.request`. Clients differ in how they send it: `ask`, `read_list`,
    `follow`.
    """

    @abstractmethod
    async def ask(self, request: Request) -> Manifest:
        """Return the object that answers a request."""

    @abstractmethod
    def read_list(self, request: Request) -> AsyncIterator[Page]:
        """Yield a collection in pages."""

    @abstractmethod
    def follow(self, request: Request) -> AsyncIterator[WatchEvent]:
        """Yield changes as they come."""

    @abstractmethod
    async def read_log(self, pod: str, *, namespace: str, container: str, tail_lines: int) -> str:
        """Return the last lines of a container's log."""

    # What the methods below call is what a client has.
    async def _ask(self, request: Request) -> Manifest:
        return await self.ask(request)

    def _read_list(self, request: Request) -> AsyncIterator[Page]:
        return self.read_list(request)

    def _follow(self, request: Request) -> AsyncIterator[WatchEvent]:
        return self.follow(request)

    async def _delete(self, request: Request) -> None:
        """Send a request to delete an object; one that is gone already is fine."""
        try:
            await self.ask(request)
        except NotFoundError:
            return
        except ConflictError:
            if request.uid is None or await self._has_uid(request, request.uid):
                raise
            # Another object has taken the name: the one that was meant is gone.

    async def _has_uid(self, request: Request, uid: str) -> bool:
        try:
            found = await self.ask(build_get(request.resource, request.name, namespace=request.namespace))
        except NotFoundError:
            return False
        return bool(found["metadata"]["uid"] == uid)

    get = sending(build_get, _ask)
    list_pages = sending(build_list, _read_list)
    watch = sending(build_watch, _follow)
    create = sending(build_create, _ask)
    replace = sending(build_replace, _ask)
    delete = sending(build_delete, _delete)

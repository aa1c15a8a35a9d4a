"""What Fray does with an API server, as a Protocol: the seam between decisions' shells and HTTP.

The official client stands behind it in production, the in-memory server of `fray.testing` in unit tests;
both are held to the same contract tests. Objects are plain manifests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from fray.kube.objects import Manifest, Page, Propagation, WatchEvent
from fray.kube.pod_streams import ForwardedPort, RemoteCommand
from fray.kube.resources import Resource

__all__ = ["KubeApi", "Manifest", "Page", "Propagation", "UserApi", "WatchEvent"]


class KubeApi(Protocol):
    """Typed access to objects; every method raises `fray.kube.errors.ApiError` when refused."""

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Manifest:
        """Return an object; raises `NotFoundError`."""
        ...

    def list_pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        metadata_only: bool = False,
    ) -> AsyncIterator[Page]:
        """Yield a collection in pages of at most `limit` objects; raises `ExpiredError` if too slow.

        A page is cut short where its objects are large; the last one has the version to watch from. With
        `metadata_only` nothing but their metadata is sent.
        """
        ...

    def watch(
        self,
        resource: Resource,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """Yield changes after a version until the server ends the stream; raises `ExpiredError`."""
        ...

    async def create(self, resource: Resource, body: Manifest, *, namespace: str | None = None) -> Manifest:
        """Create an object, strictly checked; of several callers one succeeds.

        Raises `AlreadyExistsError` for the others.
        """
        ...

    async def replace(self, resource: Resource, body: Manifest, *, subresource: str = "") -> Manifest:
        """Replace an object of this resourceVersion; raises `ConflictError` if it has changed.

        One that is gone is a `NotFoundError`, or a `ConflictError` where a PUT may create (Leases).
        """
        ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation = "Background",
    ) -> None:
        """Delete an object, only if it still has this uid; one that is gone already is fine.

        With a version only if it still is of that one; raises `ConflictError` if it has changed.
        """
        ...

    def stream_log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str,
        follow: bool,
        since: str | None = None,
        tail_lines: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield a container's log in pieces as it comes, each line with its time before it.

        From a time (RFC 3339, whole seconds) on, or only its last lines; with `follow` until the container
        has ended.
        """
        ...

    async def read_log(self, pod: str, *, namespace: str, container: str, tail_lines: int) -> str:
        """Return the last lines of a container's log."""
        ...


class UserApi(KubeApi, Protocol):
    """What users' clients do beyond what the operator does."""

    async def apply(
        self, resource: Resource, body: Manifest, *, manager: str, namespace: str | None = None
    ) -> Manifest:
        """Make an object be as `body` says, no matter who set its fields before; strictly checked.

        It is a server-side apply of `manager`: what that has set before and `body` lacks is taken away.
        """
        ...

    async def store(self, resource: Resource, body: Manifest, *, namespace: str | None = None) -> None:
        """Create an object as `create` does, of which nothing comes back: for what is large, and known."""
        ...

    def run_command(
        self, pod: str, *, namespace: str, container: str, command: Sequence[str], tty: bool
    ) -> AbstractAsyncContextManager[RemoteCommand]:
        """Run a command in a container within the context; with `tty` on a terminal.

        Raises `NotFoundError` where there is no such pod, and `RefusedError` where it can't be asked so.
        """
        ...

    def forward_port(
        self, pod: str, *, namespace: str, port: int
    ) -> AbstractAsyncContextManager[ForwardedPort]:
        """Connect to a port of a pod within the context; needs `get` and `create` on `pods/portforward`.

        Raises `NotFoundError` where there is no such pod, and `RefusedError` where it can't be reached so.
        """
        ...

    async def read_page(self, pod: str, *, namespace: str, port: int, path: str) -> bytes:
        """Return what a pod answers by HTTP, through the API server; needs the verb `get` on `pods/proxy`.

        Raises `NotFoundError` where there is no such pod or page, `ServerError` where it can't be reached.
        """
        ...

    async def discover(self, group: str, version: str = "") -> Manifest:
        """Return what a version of an API group serves, or which versions there are.

        Raises `NotFoundError` where there is no such group or version.
        """
        ...

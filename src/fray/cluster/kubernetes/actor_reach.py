"""Calling actors from outside of the cluster: members are reached through port-forwards of the API server.

A local port stands for a port of a pod. TLS goes from end to end: the keys are read from the Secret
`fray-auth`, and the local port gives nothing to those who haven't got them.
"""

from __future__ import annotations

import base64
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from fray.cluster.base import Cluster
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import persistently
from fray.cluster.kubernetes.local_port import PortForward
from fray.cluster.kubernetes.session import Session
from fray.errors import ClusterUnreachableError, TransportError
from fray.kube.api import Manifest
from fray.kube.errors import ApiError
from fray.kube.objects import Page
from fray.kube.resources import SECRETS, Resource
from fray.runtime.actors.identity import Member
from fray.runtime.pool.joined_pool import ClientHost, JoinedPool, open_store
from fray.runtime.pool.transport.addresses import Address
from fray.runtime.pool.transport.keys import (
    ACCEPTED_FILE,
    CERTIFICATE_FILE,
    PRIVATE_KEY_FILE,
    SECRET_FILE,
    TransportKey,
)
from fray.runtime.pool.transport.settings import TransportSettings
from fray.vocabulary import AUTH_SECRET

__all__ = ["ClusterReach", "SessionApi"]

T = TypeVar("T")
SETTINGS: Final = TransportSettings(handshake_seconds=15.0)
"""The API server and a kubelet stand between both sides."""


class SessionApi:
    """The objects of a session's namespace, for any thread; see `fray.runtime.api.client.ObjectApi`.

    All methods raise `ApiError`, and `AccessDeniedError` where the account lacks a right.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def namespace(self) -> str:
        """Where the actors are."""

        async def name(access: Access) -> str:
            return access.namespace

        return self._session.ask(name)

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Manifest:
        """Return an object; raises `NotFoundError`."""
        return self._ask(lambda access: access.api.get(resource, name, namespace=namespace))

    def list_pages(self, resource: Resource, *, namespace: str | None = None) -> Iterator[Page]:
        """Return all objects of a kind, page by page."""

        async def read(access: Access) -> list[Page]:
            return [page async for page in access.api.list_pages(resource, namespace=namespace)]

        yield from self._ask(read)

    def create(
        self, resource: Resource, body: Manifest, *, namespace: str | None = None, repeat: bool = False
    ) -> Manifest:
        """Create an object; of several callers one succeeds."""
        return self._ask(lambda access: access.api.create(resource, body, namespace=namespace), repeat=repeat)

    def delete(
        self, resource: Resource, name: str, *, namespace: str | None = None, uid: str | None = None
    ) -> None:
        """Delete an object, only if it still has this uid; one that is gone already is fine."""
        self._ask(lambda access: access.api.delete(resource, name, namespace=namespace, uid=uid))

    def _ask(self, act: Callable[[Access], Awaitable[T]], *, repeat: bool = True) -> T:
        async def run(access: Access) -> T:
            return await (persistently(lambda: act(access)) if repeat else act(access))

        try:
            return self._session.ask(run)
        except ClusterUnreachableError as error:
            if isinstance(error.__cause__, ApiError):
                raise error.__cause__ from error  # which those who wait for an actor know as passing
            raise


class ClusterReach:
    """How a process outside of a cluster reaches its actors; see `fray.runtime.actors.joining.Reach`.

    It can be pickled as the `cluster` can, which it keeps from being closed: in another process it connects
    anew.
    """

    def __init__(self, cluster: Cluster, session: Session) -> None:
        self._cluster, self._session = cluster, session
        self.api = SessionApi(session)
        self._forwards: dict[tuple[str, int], PortForward] = {}
        self._lock = threading.Lock()
        # Not when the process ends: its pools, which are stopped then, go on by these until they are.
        weakref.finalize(self, _close_all, self._forwards).atexit = False

    def start(self) -> None:
        """Do nothing: the operator does it."""

    def join(self, member: Member, address: Address) -> JoinedPool:
        """Join the pool of a member, whose pod listens at this address.

        Raises:
            AccessDeniedError: The account may not read `fray-auth`, or not forward ports of pods.
            ApiError, TransportError: It can't be reached.
        """
        environ = os.environ  # noqa: TID251 - what limits the threads of this process
        forward = self._forward(member, address)
        owned = open_store(None, environ)
        try:
            key = self._write_keys(owned.store.directory)
        except BaseException:
            owned.close()
            raise
        offer = ClientHost(owned, None, route=lambda other: self._forward(member, other).address)
        try:
            return JoinedPool(forward.address, key, offer, patience=0.0, settings=SETTINGS, environ=environ)
        except TransportError:
            if forward.problem is not None:
                raise forward.problem from None
            raise

    def _forward(self, member: Member, address: Address) -> PortForward:
        place = (member.pod_name, address.port)
        with self._lock:
            if place not in self._forwards:
                self._forwards[place] = PortForward(self._session, *place)
            return self._forwards[place]

    def _write_keys(self, directory: Path) -> TransportKey:
        """Write the keys into a directory that only this user may enter, and that goes with the pool."""
        secret = self.api.get(SECRETS, AUTH_SECRET, namespace=self.api.namespace)
        for name in (SECRET_FILE, CERTIFICATE_FILE, PRIVATE_KEY_FILE, ACCEPTED_FILE):
            if (data := (secret.get("data") or {}).get(name)) is not None:
                (directory / name).write_bytes(base64.b64decode(data))
        return TransportKey.load(directory)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reach_anew, (self._cluster,)


def _reach_anew(cluster: Any) -> ClusterReach:
    return ClusterReach(cluster, cluster.session)


def _close_all(forwards: dict[tuple[str, int], PortForward]) -> None:
    for forward in forwards.values():
        forward.close()

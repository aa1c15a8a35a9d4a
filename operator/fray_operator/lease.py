"""One leader among several operator processes, by a Lease of our own.

Times are this process's monotonic clock only: wall clocks of different hosts may differ. A leader counts
itself as such until two thirds of the duration after it *sent* its last successful renewal, a successor
waits for the whole duration after it *saw* the last change; so at no moment two processes lead, even
when the API server hangs. Nothing here knows what the leader does.

The same Lease is the claim of an installation to what it serves (`fray_operator.scope`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from fray.kube.resources import LEASES

__all__ = ["Holders", "Lease", "LeaseLostError"]

logger = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """The process must not write any more: another one may lead already."""


class Holders:
    """Tells who holds Leases, as far as was seen from here.

    A holder that has been silent for its whole duration has lost its Lease; `seconds` is the duration of a
    Lease that names none. `clock` returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float], *, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._seen: dict[tuple[str, str], tuple[Any, float]] = {}

    def find(self, lease: Manifest) -> str | None:
        """Return the identity that holds a Lease, None when it is free."""
        metadata, spec, now = lease["metadata"], _spec(lease), self._clock()
        key, version = (metadata["namespace"], metadata["name"]), metadata["resourceVersion"]
        if key not in self._seen or self._seen[key][0] != version:
            self._seen[key] = version, now
        run_out = now - self._seen[key][1] >= float(spec.get("leaseDurationSeconds") or self._seconds)
        return None if run_out else spec.get("holderIdentity") or None


class Lease:
    """The claim of one process to be the leader, or of one installation to what it serves.

    `identity` is this process or installation, `seconds` the duration after which a silent one is replaced.
    """

    def __init__(
        self,
        api: KubeApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        seconds: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._api, self.namespace, self.name = api, namespace, name
        self._identity, self._seconds = identity, seconds
        self._clock = clock or asyncio.get_running_loop().time
        self._held_until = float("-inf")
        self._claimed = False
        """Whether the server may have a claim of this process: one was sent, and wasn't refused."""
        self._holders = Holders(self._clock, seconds=seconds)
        self.holder: str | None = None
        """Who else held the Lease when this process claimed it last."""
        self._written: Manifest | None = None
        """The Lease as this process has written it last, where nothing has gone wrong since."""
        self._call_seconds = seconds / 3

    def held(self) -> bool:
        """Return whether this process is the leader for certain at this moment."""
        return self._clock() < self._held_until

    def require(self) -> None:
        """Raise `LeaseLostError` unless this process is the leader."""
        if not self.held():
            raise LeaseLostError(f"{self._identity} no longer holds the lease {self.name}")

    async def acquire(self) -> None:
        """Wait until this process is the leader."""
        while not await self.claim():  # noqa: ASYNC110 - the lease of another process wakes nobody
            await asyncio.sleep(self._seconds / 5)
        logger.info("leading as %s", self._identity)

    async def claim(self) -> bool:
        """Take or renew the lease once; return whether it is ours. Failures leave things as they are."""
        written, self._written = self._written, None
        self.holder = None
        # Before anything is sent: a process that is ended while it waits for the answer may hold the lease.
        self._claimed = True
        try:
            sent = await self._renew(written) if written is not None else await self._take()
        except ConflictError:
            logger.info("another process wrote the lease first")
            return self.held()
        except (ApiError, TimeoutError) as error:
            logger.warning("the lease could not be renewed: %s", str(error) or type(error).__name__)
            return self.held()
        self._held_until = float("-inf") if sent is None else sent + self._seconds * 2 / 3
        self._claimed = sent is not None
        return self._claimed

    async def keep(self) -> None:
        """Renew for ever; raises `LeaseLostError` as soon as this process may not lead any more."""
        renewed = True
        while True:
            # After a renewal that was never answered there is time for one more, if it follows soon.
            await asyncio.sleep(self._seconds / (6 if renewed else 30))
            # A process that was stopped in between must not lead again: its workers have been refused writes,
            # and another one may have led since.
            self.require()
            until = self._held_until
            await self.claim()
            self.require()
            renewed = self._held_until > until

    async def release(self) -> None:
        """Let the next process lead at once, where this one leads or has asked to and never heard."""
        if not self._claimed:
            return
        known = self._written if self.held() else None
        self._claimed, self._held_until = False, float("-inf")
        try:
            lease = known or await self._get()
            spec = _spec(lease)
            if spec.get("holderIdentity") == self._identity:
                await self._put({**lease, "spec": {**spec, "holderIdentity": ""}})
        except NotFoundError:
            return  # nobody has to wait for a lease that isn't there
        except (ApiError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            logger.warning("the lease was not released; it will run out by itself: %s", reason)

    async def _renew(self, written: Manifest) -> float | None:
        """Renew what this process has written; return when that was sent, None when it may not."""
        sent = self._clock()
        claim = {**self._claim(), "acquireTime": written["spec"].get("acquireTime")}
        try:
            self._written = await self._put({**written, "spec": {**written["spec"], **claim}})
        except ConflictError:
            return await self._take()  # somebody has edited it, or taken it
        return sent

    async def _take(self) -> float | None:
        """Take the lease if it is free, or ours; return when the claim was sent, None when it may not."""
        try:
            lease = await self._get()
        except NotFoundError:
            return await self._create()
        spec = _spec(lease)
        holder = self._holders.find(lease)
        if holder not in (None, self._identity):
            self.holder = holder
            return None
        changes = int(spec.get("leaseTransitions") or 0) + (spec.get("holderIdentity") != self._identity)
        sent = self._clock()
        taken = {**lease, "spec": {**spec, **self._claim(), "leaseTransitions": changes}}
        self._written = await self._put(taken)
        return sent

    async def _create(self) -> float | None:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {**self._claim(), "leaseTransitions": 0},
        }
        sent = self._clock()
        try:
            async with asyncio.timeout(self._call_seconds):
                self._written = await self._api.create(LEASES, body)
        except AlreadyExistsError:
            return None
        return sent

    async def _get(self) -> Manifest:
        async with asyncio.timeout(self._call_seconds):
            return await self._api.get(LEASES, self.name, namespace=self.namespace)

    async def _put(self, lease: Manifest) -> Manifest:
        async with asyncio.timeout(self._call_seconds):
            return await self._api.replace(LEASES, lease)

    def _claim(self) -> Manifest:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._seconds)),
            "acquireTime": now,
            "renewTime": now,
        }


def _spec(lease: Manifest) -> Manifest:
    # A Lease that somebody made by hand may have none.
    return lease.get("spec") or {}

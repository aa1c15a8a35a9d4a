"""Keeps the Secret `fray-auth` where there are actors, workers or callables: pods know each other by it.

What is to be done is decided in `auth_keys`; here it is read and written. The operator may create Secrets,
and get and update this one alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from fray.kube.resources import SECRETS
from fray.vocabulary import AUTH_SECRET
from fray_operator.lease import Lease

__all__ = ["AuthKeeper", "wants_auth"]

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at what there is; the pods of a new job or actor wait for the Secret."""
CHECK_SECONDS = 60.0
"""Between two looks at a Secret that is there."""
RETRY_SECONDS = 10.0
"""Before a namespace is tried again whose Secret can't be read or written."""


def wants_auth(job: Manifest) -> bool:
    """Return whether a FrayJob's pods mount `fray-auth`: it has a callable, or has or may get workers."""
    spec = job.get("spec") or {}
    workers, entrypoint = spec.get("workers"), spec.get("entrypoint")
    if isinstance(entrypoint, dict) and entrypoint.get("callable"):
        return True
    return isinstance(workers, dict) and workers.get("maxReplicas") != 0


@dataclass
class _Seen:
    """A namespace's Secret: its version, since when this process has seen that, and when it looks again."""

    version: str = ""
    since: float = 0.0
    next_look: float = 0.0


class AuthKeeper:
    """Makes and rotates the keys of all namespaces that need them.

    There is one in a process: two would disagree about how long a Secret has been as it is. Parameters: the
    server, the lease that every write needs, and what returns the namespaces that need keys.
    """

    def __init__(
        self,
        api: KubeApi,
        lease: Lease,
        find_namespaces: Callable[[], Iterable[str]],
        *,
        clock: Callable[[], float] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api, self._lease, self._find_namespaces = api, lease, find_namespaces
        self._clock = clock or asyncio.get_running_loop().time
        self._now = now
        self._seen: dict[str, _Seen] = {}

    async def run(self) -> None:
        """Look at jobs and actors for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Look once at jobs and actors, and at each Secret whose time has come."""
        for namespace in sorted(self._find_namespaces()):
            seen = self._seen.setdefault(namespace, _Seen())
            if seen.next_look > self._clock():
                continue
            try:
                await self._keep(namespace, seen)
                seen.next_look = self._clock() + CHECK_SECONDS
            except (AlreadyExistsError, ConflictError, NotFoundError):
                # Another process wrote it first, or somebody deleted it: the next look begins anew.
                seen.next_look = 0.0
            except (ApiError, TimeoutError) as error:
                logger.warning("Secret %s of namespace %s: %s", AUTH_SECRET, namespace, error)
                seen.next_look = self._clock() + RETRY_SECONDS

    async def _keep(self, namespace: str, seen: _Seen) -> None:
        # The package behind it is loaded by the first job with workers only.
        from fray_operator import auth_keys  # noqa: PLC0415

        now = self._now()
        try:
            secret = await self._api.get(SECRETS, AUTH_SECRET, namespace=namespace)
        except NotFoundError:
            keys = auth_keys.apply_step(None, auth_keys.Step.MAKE, now=now)
            self._lease.require()
            await self._api.create(SECRETS, auth_keys.build_secret(keys, namespace=namespace))
            logger.info("made Secret %s in namespace %s", AUTH_SECRET, namespace)
            return
        version = secret["metadata"]["resourceVersion"]
        if version != seen.version:
            seen.version, seen.since = version, self._clock()
        step = auth_keys.derive_step(secret, now=now, unchanged_seconds=self._clock() - seen.since)
        if step is auth_keys.Step.KEEP:
            return
        if not auth_keys.is_ours(secret):
            if step is auth_keys.Step.MAKE:
                problem = "holds no key that can be used, and isn't the operator's: delete it"
                logger.error("Secret %s of namespace %s %s", AUTH_SECRET, namespace, problem)
            return
        keys = auth_keys.apply_step(auth_keys.parse_keys(secret), step, now=now)
        data = auth_keys.build_secret(keys, namespace=namespace)["data"]
        self._lease.require()
        await self._api.replace(SECRETS, {**secret, "data": data})
        level = logging.WARNING if step in (auth_keys.Step.MAKE, auth_keys.Step.REPAIR) else logging.INFO
        logger.log(level, "Secret %s of namespace %s: %s", AUTH_SECRET, namespace, step.value)

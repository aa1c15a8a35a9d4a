"""One installation per namespace: the claims by which installations notice that their scopes overlap.

An installation for some namespaces holds a Lease in each of them, a cluster-wide one holds one Lease in
`default`, which every account may read. Before an installation serves anything it looks for the claims of
others, makes its own, and looks again: of two that start at the same moment at least one sees the other,
and takes its claims back. Claims belong to the installation and not to the process, so another replica, or
a newer version, goes on with them.
"""

from __future__ import annotations

import asyncio
import logging
import random

from fray.kube.api import KubeApi
from fray.kube.errors import ApiError, ForbiddenError, NotFoundError
from fray.kube.resources import LEASES
from fray_operator.lease import Holders, Lease

__all__ = ["Scope"]

logger = logging.getLogger(__name__)

NAMESPACE_CLAIM = "fray-scope"
CLUSTER_CLAIM = "fray-scope-cluster"
CLUSTER_CLAIM_NAMESPACE = "default"
"""Exists in every cluster; an operator without cluster-wide rights knows no other one to look in."""

LOOK_SECONDS = 1.0
"""Shortest pause between two looks of an installation that waits; the longest is twice that."""


class Scope:
    """The claims of one installation to what it serves: all of the cluster where `namespaces` is empty.

    `installation` is the namespace that it is installed in, `seconds` the duration after which the claims of
    a silent installation count no more.
    """

    def __init__(
        self, api: KubeApi, *, namespaces: tuple[str, ...], installation: str, seconds: float
    ) -> None:
        self._api, self._namespaces = api, namespaces
        self._installation = installation
        places = [(each, NAMESPACE_CLAIM) for each in namespaces]
        self.claims = [
            Lease(api, namespace=namespace, name=name, identity=installation, seconds=seconds)
            for namespace, name in places or [(CLUSTER_CLAIM_NAMESPACE, CLUSTER_CLAIM)]
        ]
        self._holders = Holders(asyncio.get_running_loop().time, seconds=seconds)
        self.overlap: str | None = None
        """Why this installation serves nothing yet, where another one serves a part of its scope."""

    async def acquire(self) -> None:
        """Wait until no other installation serves a part of this scope, and claim it.

        The caller has to `keep` the claims from then on.
        """
        while (overlap := await self._claim()) is not None:
            if overlap != self.overlap:
                logger.error("%s: this installation does nothing while that is so", overlap)
            self.overlap = overlap
            # Two that have seen each other's claims must not meet again.
            await asyncio.sleep(LOOK_SECONDS * (1 + random.random()))
        if self.overlap is not None:
            logger.info("no other installation serves a part of the scope any more")
        self.overlap = None

    async def release(self) -> None:
        """Let another installation serve this scope at once, where this one has claimed it."""
        for claim in self.claims:
            await claim.release()

    async def _claim(self) -> str | None:
        """Try once; return what stands against it."""
        overlap = await self._find_overlap()
        if overlap is not None:
            return overlap
        for claim in self.claims:
            if not await claim.claim():
                overlap = f"{claim.name} in namespace {claim.namespace} could not be claimed"
                if claim.holder is not None:
                    overlap = self._describe(claim.namespace if self._namespaces else None, claim.holder)
                break
        else:
            overlap = await self._find_overlap()
        if overlap is not None:
            await self.release()
        return overlap

    async def _find_overlap(self) -> str | None:
        """Look for installations whose claims are others than these: cluster-wide, or for namespaces."""
        try:
            return await (self._find_cluster_wide() if self._namespaces else self._find_for_namespaces())
        except (ApiError, TimeoutError) as error:
            return f"the claims of other installations can't be read: {error}"

    async def _find_cluster_wide(self) -> str | None:
        try:
            lease = await self._api.get(LEASES, CLUSTER_CLAIM, namespace=CLUSTER_CLAIM_NAMESPACE)
        except (NotFoundError, ForbiddenError):
            return None  # a cluster-wide installation grants everybody the right to read it
        return self._describe(None, self._holders.find(lease))

    async def _find_for_namespaces(self) -> str | None:
        async for page in self._api.list_pages(LEASES, fields=f"metadata.name={NAMESPACE_CLAIM}"):
            for lease in page.items:
                conflict = self._describe(lease["metadata"]["namespace"], self._holders.find(lease))
                if conflict is not None:
                    return conflict
        return None

    def _describe(self, namespace: str | None, holder: str | None) -> str | None:
        if holder in (None, self._installation):
            return None
        served = "all namespaces are" if namespace is None else f"namespace {namespace} is"
        return f"{served} served by the installation in namespace {holder} already"

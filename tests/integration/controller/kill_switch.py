"""The API seen by an operator that dies at a chosen write: right before it, or right after it was done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from fray.kube.api import KubeApi, Manifest, Page, Propagation, WatchEvent
from fray.kube.errors import UnreachableError
from fray.kube.resources import FRAYJOBS, LEASES, Resource
from fray.vocabulary import LABEL_JOB
from tests.integration.controller.stories import build_parent_name

__all__ = ["KillSwitch", "Moment"]

Moment = Literal["before", "after"]


@dataclass(frozen=True)
class _Plan:
    name: str
    number: int
    moment: Moment


class KillSwitch:
    """Passes everything on until it kills; from then on nothing reaches the server."""

    def __init__(self, api: KubeApi, kill: Callable[[], None]) -> None:
        self._api, self._kill = api, kill
        self._count, self._plan = 0, _Plan("", 0, "before")
        self.dead = False

    def arm(self, name: str, *, number: int, moment: Moment) -> None:
        """Kill at the `number`-th write about the FrayJob `name` or its parent; the Lease doesn't count."""
        self._count, self._plan = 0, _Plan(name, number, moment)

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Manifest:
        self._check()
        return await self._api.get(resource, name, namespace=namespace)

    async def list_pages(self, resource: Resource, **options: Any) -> AsyncIterator[Page]:
        self._check()
        async for page in self._api.list_pages(resource, **options):
            yield page

    async def watch(self, resource: Resource, **options: Any) -> AsyncIterator[WatchEvent]:
        self._check()
        async for event in self._api.watch(resource, **options):
            yield event

    async def create(self, resource: Resource, body: Manifest, *, namespace: str | None = None) -> Manifest:
        dies = self._count_write(resource, body["metadata"].get("labels", {}).get(LABEL_JOB))
        created = await self._api.create(resource, body, namespace=namespace)
        return self._die() if dies else created

    async def replace(self, resource: Resource, body: Manifest, *, subresource: str = "") -> Manifest:
        dies = self._count_write(resource, body["metadata"]["name"] if resource == FRAYJOBS else None)
        replaced = await self._api.replace(resource, body, subresource=subresource)
        return self._die() if dies else replaced

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
        dies = self._count_write(resource, name if resource == FRAYJOBS else name.rpartition("-a")[0])
        await self._api.delete(
            resource,
            name,
            namespace=namespace,
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
        )
        if dies:
            self._die()

    async def read_log(self, pod: str, *, namespace: str, container: str, tail_lines: int) -> str:
        self._check()
        return await self._api.read_log(pod, namespace=namespace, container=container, tail_lines=tail_lines)

    def _count_write(self, resource: Resource, job: str | None) -> bool:
        """Return whether to die after this write; die at once when it is to be before it."""
        self._check()
        if resource is LEASES or job not in (self._plan.name, build_parent_name(self._plan.name)):
            return False
        self._count += 1
        if self._count != self._plan.number:
            return False
        if self._plan.moment == "before":
            self._die()
        return True

    def _die(self) -> NoReturn:
        self.dead = True
        self._kill()
        self._check()
        raise AssertionError("unreachable")

    def _check(self) -> None:
        if self.dead:
            raise UnreachableError("any request", 0, "Dead", "the process was killed")

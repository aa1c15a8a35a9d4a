"""The API seen by an operator that dies at a chosen write: right before it, or right after it was done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal, NoReturn

from fray.kube.api import KubeApi, Manifest, Page, WatchEvent
from fray.kube.errors import UnreachableError
from fray.kube.request import Request
from fray.kube.resources import FRAYACTORS, FRAYJOBS, LEASES, STATEFUL_SETS, Resource
from fray.vocabulary import LABEL_ACTOR, LABEL_JOB
from tests.integration.controller.stories import build_parent_name

__all__ = ["KillSwitch", "Moment"]

Moment = Literal["before", "after"]


@dataclass(frozen=True)
class _Plan:
    name: str
    number: int
    moment: Moment


class KillSwitch(KubeApi):
    """Passes everything on until it kills; from then on nothing reaches the server."""

    def __init__(self, api: KubeApi, kill: Callable[[], None]) -> None:
        self._api, self._kill = api, kill
        self._count, self._plan = 0, _Plan("", 0, "before")
        self.dead = False

    def arm(self, name: str, *, number: int, moment: Moment) -> None:
        """Kill at the `number`-th write about the job or actor `name`, or its parent; Leases don't count."""
        self._count, self._plan = 0, _Plan(name, number, moment)

    async def ask(self, request: Request) -> Manifest:
        if request.method == "GET":
            self._check()
            return await self._api.ask(request)
        dies = self._count_write(request.resource, _name_subject(request))
        answer = await self._api.ask(request)
        return self._die() if dies else answer

    async def read_list(self, request: Request) -> AsyncIterator[Page]:
        self._check()
        async for page in self._api.read_list(request):
            yield page

    async def follow(self, request: Request) -> AsyncIterator[WatchEvent]:
        self._check()
        async for event in self._api.follow(request):
            yield event

    async def read_log(self, pod: str, *, namespace: str, container: str, tail_lines: int) -> str:
        self._check()
        return await self._api.read_log(pod, namespace=namespace, container=container, tail_lines=tail_lines)

    def _count_write(self, resource: Resource, subject: str | None) -> bool:
        """Return whether to die after this write; die at once when it is to be before it."""
        self._check()
        if resource is LEASES or subject not in (self._plan.name, build_parent_name(self._plan.name)):
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


def _name_subject(request: Request) -> str | None:
    """Return the FrayJob or FrayActor that a write is about."""
    if request.method == "POST":
        assert request.body is not None
        labels = request.body["metadata"].get("labels", {})
        name: str | None = labels.get(LABEL_JOB) or labels.get(LABEL_ACTOR)
        return name
    if request.resource in (FRAYJOBS, FRAYACTORS, STATEFUL_SETS):
        return request.name
    return request.name.rpartition("-a")[0] if request.method == "DELETE" else None

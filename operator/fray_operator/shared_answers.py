"""Answers of the server that all share who ask within some seconds: any answer, Events, Kueue's Workloads.

What explains why a job waits is the same for a thousand jobs that wait at once; without this, each of them
would ask for the whole list again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError, ForbiddenError, NotFoundError
from fray.kube.resources import EVENTS, WORKLOADS
from fray.plan.complaints import Complaint, build_complaint
from fray.plan.kueue import WorkloadSummary, build_workload_summary
from fray.vocabulary import LABEL_KUEUE_JOB_UID

__all__ = ["SharedAnswer", "SharedByNamespace", "Workloads", "share_complaints"]

logger = logging.getLogger(__name__)

EVENTS_SECONDS = 5.0
"""How long a list of events is good enough."""
WORKLOADS_SECONDS = 10.0
"""How long a list of a namespace's Workloads is good enough to explain with."""

Answer = TypeVar("Answer")
Summaries = Mapping[str, WorkloadSummary]
"""By the uid of the JobSet."""


class SharedAnswer(Generic[Answer]):
    """The answer of `ask`, asked for again once it is `seconds` old; an error is passed on and not kept."""

    def __init__(self, ask: Callable[[], Awaitable[Answer]], *, seconds: float) -> None:
        self._ask, self._seconds = ask, seconds
        self._kept: tuple[float, Answer] | None = None
        self._lock = asyncio.Lock()

    async def get(self, *, seconds: float | None = None) -> Answer:
        """Return the answer; those who come while it is being asked for wait for that one.

        One that must not be as old as others may be is at most so many `seconds` old.
        """
        clock = asyncio.get_running_loop().time
        async with self._lock:
            most = self._seconds if seconds is None else min(seconds, self._seconds)
            if self._kept is None or clock() >= self._kept[0] + most:
                answer = await self._ask()
                self._kept = clock(), answer
            return self._kept[1]


class SharedByNamespace(Generic[Answer]):
    """The answer of `ask` for each namespace that somebody wants to know about."""

    def __init__(self, ask: Callable[[str], Awaitable[Answer]], *, seconds: float) -> None:
        self._ask, self._seconds = ask, seconds
        self._answers: dict[str, SharedAnswer[Answer]] = {}

    async def get(self, namespace: str) -> Answer:
        """Return the answer for a namespace."""
        if namespace not in self._answers:
            ask = functools.partial(self._ask, namespace)
            self._answers[namespace] = SharedAnswer(ask, seconds=self._seconds)
        return await self._answers[namespace].get()


def share_complaints(
    api: KubeApi, wanted: Sequence[tuple[str, str]]
) -> SharedByNamespace[Sequence[Complaint]]:
    """Return what tells of the Events of these kinds and reasons, in no order; none where they can't be read.

    The server looks at every Event of the namespace to answer, so it is asked only where nothing else tells
    why a job waits.
    """

    async def ask(namespace: str) -> Sequence[Complaint]:
        complaints = []
        try:
            for kind, reason in wanted:
                fields = f"involvedObject.kind={kind},reason={reason}"
                async for page in api.list_pages(EVENTS, namespace=namespace, fields=fields):
                    complaints += [build_complaint(event) for event in page.items]
        except ApiError as error:
            logger.warning("events can't be read; explanations will be less precise: %s", error)
            return []
        return complaints

    return SharedByNamespace(ask, seconds=EVENTS_SECONDS)


class Workloads:
    """Workloads as the server tells of them; None where it tells of none to this operator.

    They are read only where a JobSet is suspended: they say why. They need not be there, nor readable: a
    cluster may have no Kueue, and an operator of one namespace may have no right to read them.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._shared = SharedByNamespace(self._list, seconds=WORKLOADS_SECONDS)

    async def get(self, namespace: str) -> Summaries | None:
        """Return those of a namespace, as of some seconds ago: thousands of jobs may wait in one."""
        return await self._shared.get(namespace)

    async def fetch(self, jobset: Manifest) -> WorkloadSummary | None:
        """Return that of a JobSet as it is now."""
        metadata = jobset["metadata"]
        found = await self._list(metadata["namespace"], labels=f"{LABEL_KUEUE_JOB_UID}={metadata['uid']}")
        return found.get(metadata["uid"]) if found is not None else None

    async def _list(self, namespace: str, *, labels: str = "") -> Summaries | None:
        try:
            for resource in WORKLOADS:
                try:
                    pages = self._api.list_pages(resource, namespace=namespace, labels=labels)
                    summaries = [build_workload_summary(item) async for page in pages for item in page.items]
                except NotFoundError:
                    continue  # a Kueue that doesn't know this version yet, or any more; or no Kueue
                return {summary.owner: summary for summary in summaries if summary is not None}
        except ForbiddenError as error:
            logger.debug("Workloads can't be read; why a job waits in its queue isn't told: %s", error)
        except ApiError as error:
            logger.warning("Workloads can't be read; explanations will be less precise: %s", error)
        return None

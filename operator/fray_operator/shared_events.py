"""Events of certain kinds and reasons, read once for all jobs of a namespace that wait at the same time.

The server looks at every event of the namespace to answer, so it is asked only where nothing else tells
why a job waits.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError
from fray.kube.resources import EVENTS
from fray_operator.shared_answer import SharedAnswer

__all__ = ["SharedEvents"]

logger = logging.getLogger(__name__)

SECONDS = 5.0
"""How long a list of events is good enough."""

Read = TypeVar("Read")


class SharedEvents(Generic[Read]):
    """What the events of these kinds and reasons say, each read by `read`; empty where they can't be read."""

    def __init__(
        self, api: KubeApi, wanted: Sequence[tuple[str, str]], *, read: Callable[[Manifest], Read]
    ) -> None:
        self._api, self._wanted, self._read = api, wanted, read
        self._answers: dict[str, SharedAnswer[list[Read]]] = {}

    async def get(self, namespace: str) -> list[Read]:
        """Return the Events of a namespace, in no order."""
        if namespace not in self._answers:
            ask = functools.partial(self._list, namespace)
            self._answers[namespace] = SharedAnswer(ask, seconds=SECONDS)
        return await self._answers[namespace].get()

    async def _list(self, namespace: str) -> list[Read]:
        events = []
        try:
            for kind, reason in self._wanted:
                fields = f"involvedObject.kind={kind},reason={reason}"
                async for page in self._api.list_pages(EVENTS, namespace=namespace, fields=fields):
                    events += [self._read(event) for event in page.items]
        except ApiError as error:
            logger.warning("events can't be read; explanations will be less precise: %s", error)
            return []
        return events

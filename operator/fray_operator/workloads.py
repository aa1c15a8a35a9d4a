"""Kueue's Workloads, read only where a JobSet is suspended: they say why.

They need not be there, nor readable: a cluster may have no Kueue, and an operator of one namespace may have
no right to read them. What they mean is `fray.plan.kueue`'s to say.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError, ForbiddenError, NotFoundError
from fray.kube.resources import WORKLOADS
from fray.plan.kueue import WorkloadSummary, build_workload_summary
from fray.vocabulary import LABEL_KUEUE_JOB_UID
from fray_operator.shared_answer import SharedAnswer

__all__ = ["Workloads"]

logger = logging.getLogger(__name__)

SECONDS = 10.0
"""How long a list of a namespace's Workloads is good enough to explain with."""

Summaries = Mapping[str, WorkloadSummary]
"""By the uid of the JobSet."""


class Workloads:
    """Workloads as the server tells of them; None where it tells of none to this operator."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._answers: dict[str, SharedAnswer[Summaries | None]] = {}

    async def get(self, namespace: str) -> Summaries | None:
        """Return those of a namespace, as of some seconds ago: thousands of jobs may wait in one."""
        if namespace not in self._answers:
            ask = functools.partial(self._list, namespace)
            self._answers[namespace] = SharedAnswer(ask, seconds=SECONDS)
        return await self._answers[namespace].get()

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

"""The nodes of the cluster, watched: what explains why a pod waits, and what a host's end is judged by."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fray.kube.api import KubeApi, Manifest
from fray.kube.errors import ApiError, ForbiddenError
from fray.kube.resources import NODES
from fray.plan.scheduling import NodeSummary, build_node_summary
from fray_operator.list_watch import ListWatch, Place
from fray_operator.shared_answers import SharedAnswer

__all__ = ["NodeInformer"]

logger = logging.getLogger(__name__)

LISTED_SECONDS = 15.0
"""How long a list of nodes is good enough to explain with."""
JUDGING_SECONDS = 5.0
"""How long ago nodes may have been heard of last by which an attempt is charged."""


class NodeInformer(ListWatch):
    """What matters of each node; the rest of a manifest, 15 KiB and more, isn't kept.

    A watch that is silent may be dead. The kubelets of a large cluster report so often that it never is; in
    a small one, where they don't, the server is asked for a list that is short.
    """

    def __init__(self, api: KubeApi) -> None:
        super().__init__(api, NODES)
        self.refused = False
        """Whether this account may not read nodes, as far as the last answers say."""
        self._nodes: dict[str, NodeSummary] = {}
        self._listed = SharedAnswer(self._read, seconds=LISTED_SECONDS)

    async def get(self, *, judging: bool = False) -> Sequence[NodeSummary] | ApiError:
        """Return all nodes, or why they can't be read: as good an answer for all who ask at once.

        `judging` says that they must be as of the last seconds, since a wrong charge can't be taken back.
        """
        if self.synced.is_set() and not (judging and self._is_behind()):
            return list(self._nodes.values())
        return await self._listed.get(seconds=JUDGING_SECONDS if judging else None)

    def _is_behind(self) -> bool:
        return self._failures > 0 or self.silent_seconds > JUDGING_SECONDS

    async def _read(self) -> Sequence[NodeSummary] | ApiError:
        try:
            pages = self._api.list_pages(NODES)
            # Page by page: the manifests of thousands of nodes take hundreds of megabytes.
            return [build_node_summary(node) async for page in pages for node in page.items]
        except ForbiddenError as error:
            return error  # the watch logs it
        except ApiError as error:
            logger.warning("nodes can't be read; explanations will be less precise: %s", error)
            return error

    def _log_end(self, error: ApiError) -> None:
        if not isinstance(error, ForbiddenError):
            super()._log_end(error)
            return
        # Once: an installation may do without, and is refused every 30 s.
        if not self.refused:
            logger.warning("nodes may not be read; explanations will be less precise: %s", error)
        self.refused = True

    async def _watch(self, version: str) -> str:
        version = await super()._watch(version)
        self.refused = False
        return version

    def _places(self) -> set[Place]:
        return {("", name) for name in self._nodes}

    def _store(self, manifest: Manifest) -> bool:
        node = build_node_summary(manifest)
        self._nodes[node.name] = node
        return True

    def _lose(self, place: Place) -> None:
        self._nodes.pop(place[1], None)

    def _end(self, last: Manifest) -> None:
        self._nodes.pop(last["metadata"]["name"], None)

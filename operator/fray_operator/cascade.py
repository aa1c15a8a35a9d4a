"""Jobs that other jobs launched end with them: `spec.stopped` is set, and why stands in an annotation.

Each child looks for itself, in its own passes, so nothing is lost when the operator dies between a parent's
end and the last of its children. What counts as the parent's end is `fray.plan.parentage`'s to say.
"""

from __future__ import annotations

import logging

from fray.kube.api import Manifest
from fray.kube.errors import ForbiddenError, NotFoundError, RefusedError
from fray.plan.parentage import ParentState, derive_parents_end, get_parent_name, read_parent
from fray.plan.pod_observation import is_ending
from fray_operator.act import Actor
from fray_operator.informer import JobKey
from fray_operator.list_watch import place_of
from fray_operator.observe import Observer
from fray_operator.store import Store

__all__ = ["OwnerCascade"]

logger = logging.getLogger(__name__)


class OwnerCascade:
    """Stops child jobs whose parent has ended."""

    def __init__(self, jobs: Store, observer: Observer, actor: Actor) -> None:
        self._jobs, self._observer, self._actor = jobs, observer, actor

    async def end_with_parent(self, body: Manifest) -> Manifest:
        """Stop an unfinished job if its parent has ended; return it as it is now."""
        if get_parent_name(body) is None or body["spec"].get("stopped") or is_ending(body):
            return body
        end = derive_parents_end(body, await self._find_parent(body))
        if end is None:
            return body
        try:
            stopped = await self._actor.stop(body, because=end)
        except (ForbiddenError, RefusedError) as error:
            # Its status is kept up to date all the same.
            logger.warning("the job can't be stopped, although %s: %s", end, error)
            return body
        except NotFoundError:
            self._jobs.discard(place_of(body), uid=body["metadata"]["uid"])
            raise
        self._jobs.update(stopped)
        logger.info("stopped: %s", end)
        return stopped

    async def _find_parent(self, body: Manifest) -> ParentState | None:
        """Return the FrayJob that has the parent's name: as the cache knows it, or else the server."""
        key = body["metadata"]["namespace"], str(get_parent_name(body))
        cached = self._jobs.get(key)
        if cached is not None:
            return read_parent(cached)
        return await self._jobs.share_parent(key, lambda: self._fetch_parent(key)).get()

    async def _fetch_parent(self, key: JobKey) -> ParentState | None:
        found = await self._observer.find_job(key)
        return None if found is None else read_parent(found)

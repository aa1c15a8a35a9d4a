"""Obsolete JobSets: their attempt has a verdict, or their job has ended, and they still run.

A request to create a JobSet that had no answer may be carried out minutes later, when its attempt was
stopped, ended or replaced long ago; nothing on the server fences it. Such a JobSet is deleted when it is
seen. `ownership` decides twice which one is obsolete: by what is known, then by the job and the JobSet as the
server has them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fray.kube.api import Manifest
from fray.vocabulary import LABEL_ATTEMPT
from fray.wire.frayjob import FrayJob
from fray_operator.act import Actor
from fray_operator.informer import JobKey
from fray_operator.observe import Observer
from fray_operator.ownership import find_obsolete, may_be_obsolete

__all__ = ["UNKNOWN_JOB_SECONDS", "ObsoleteJobSets"]

logger = logging.getLogger(__name__)

UNKNOWN_JOB_SECONDS = 10.0
"""How long a JobSet that goes on, whose job isn't known, is left alone: the watch may yet tell of its job."""


class ObsoleteJobSets:
    """Deletes obsolete JobSets. `parse` reads a FrayJob, or raises `UnreadableError`."""

    def __init__(self, observer: Observer, actor: Actor, *, parse: Callable[[Manifest], FrayJob]) -> None:
        self._observer, self._actor, self._parse = observer, actor, parse

    async def remove(self, key: JobKey, job: FrayJob) -> None:
        """Delete those of a job that is known, whose status is the one written last."""
        await self._remove(key, find_obsolete(job, self._observer.list_children(key)))

    async def remove_of_unknown(self, key: JobKey) -> None:
        """Delete those of a job that isn't known to go on: finished, gone, or not yet seen."""
        await self._remove(key, list(filter(may_be_obsolete, self._observer.list_children(key))))

    async def _remove(self, key: JobKey, suspects: list[Manifest]) -> None:
        # One whose hosts have all ended well holds nothing, and JobSet is about to say that it is completed.
        suspects = [each for each in suspects if not self._observer.has_succeeded(key, each)]
        if not suspects:
            return
        # After the JobSets were seen: a status tells of an attempt before its JobSet is made, so the one read
        # now tells of each of them. What is known of the job may be older.
        body = await self._observer.find_job(key)
        if body is None:
            return  # what it owned is the garbage collector's
        job = self._parse(body)
        for suspect in find_obsolete(job, suspects):
            name, uid = suspect["metadata"]["name"], suspect["metadata"]["uid"]
            jobset = await self._observer.fetch_jobset(key[0], name)
            if jobset is None or jobset["metadata"]["uid"] != uid or not find_obsolete(job, [jobset]):
                continue
            attempt = jobset["metadata"]["labels"][LABEL_ATTEMPT]
            logger.info("JobSet %s goes on, and attempt %s has ended: deleting it", name, attempt)
            await self._actor.delete_child(jobset)

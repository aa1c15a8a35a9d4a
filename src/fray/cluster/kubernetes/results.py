"""What is read of jobs: how they stand, and what their callables left for their client."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from fray.cluster.arguments import check_job_id
from fray.cluster.kubernetes.access import Access
from fray.cluster.kubernetes.api_errors import persistently
from fray.cluster.kubernetes.pod_log import read_state
from fray.errors import JobNotFoundError, OutcomeUnreadableError
from fray.kube.api import Manifest
from fray.kube.errors import ApiError, NotFoundError
from fray.kube.resources import CONFIG_MAPS, FRAYJOBS, PODS
from fray.payload.outcome import encode_value, outcome_name
from fray.payload.staging import staged_outcome_url
from fray.plan.gang import derive_gang
from fray.plan.status import find_condition, has_succeeded, is_finished
from fray.termination import Ending, TerminationMessage
from fray.types import JobId
from fray.vocabulary import LABEL_ATTEMPT, LABEL_JOB_UID, OUTCOME_KEY, ConditionType, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.model import OBJECT_NAME_PATTERN

__all__ = [
    "KeptOutcome",
    "describe_place",
    "group_by_rank",
    "is_possible_name",
    "list_jobs",
    "list_pods",
    "read_job",
    "read_outcome",
    "read_outcomes",
]

NOTHING = encode_value(None)
LONGEST_NAME = 253
NAMES_READ = 200
READ_AT_ONCE = 16
"""Outcomes of ranks that are read side by side."""


def describe_place(access: Access) -> str:
    """Return where jobs are looked for, in words."""
    return f"namespace {access.namespace} of the cluster at {access.server}"


def is_possible_name(name: str) -> bool:
    """Whether an object may have this name; in a URL or a selector another may mean anything."""
    return len(name) <= LONGEST_NAME and re.fullmatch(OBJECT_NAME_PATTERN, name) is not None


async def read_job(access: Access, name: JobId) -> FrayJob:
    """Return a FrayJob.

    Raises `JobNotFoundError`, with names like it, `InvalidRequestError` for what is no text, or `ApiError`.
    """
    if not is_possible_name(check_job_id(name)):
        raise await _not_found(access, name)
    try:
        found = await persistently(lambda: access.api.get(FRAYJOBS, name, namespace=access.namespace))
    except NotFoundError as missing:
        if not missing.reason:
            raise  # no such kind
        raise await _not_found(access, name) from missing
    return FrayJob.from_manifest(found)


async def list_jobs(access: Access) -> list[FrayJob]:
    """Return all FrayJobs of the namespace, sorted by name."""

    async def read() -> list[FrayJob]:
        pages = access.api.list_pages(FRAYJOBS, namespace=access.namespace)
        found = [FrayJob.from_manifest(job) async for page in pages for job in page.items]
        return sorted(found, key=lambda job: job.metadata.name)

    return await persistently(read)


@dataclass(frozen=True)
class KeptOutcome:
    """Where the outcome of a job's callable is: `data` itself, or its `url`.

    `sha256` is what the job's status tells, `story` what it says of the attempt's end.
    """

    sha256: str
    data: bytes = field(default=b"", repr=False)
    url: str = ""
    story: str = ""


async def read_outcome(access: Access, found: FrayJob) -> KeptOutcome | None:
    """Return what a finished job's callable left, or where it lies behind the job's staging URL.

    None where it left none, or the job was stopped or ended between two attempts.

    Raises `OutcomeUnreadableError` where it can't be had.
    """
    if found.spec.entrypoint.callable is None or not is_finished(found.status) or not found.status.attempts:
        return None
    last = found.status.attempts[-1]
    if last.outcome is None or not _is_of_the_end(found):
        return None
    return await _read_kept(access, found, last.rank or 0, last.outcome)


async def read_outcomes(access: Access, found: FrayJob) -> list[KeptOutcome | None]:
    """Return what each rank of a job's callable left, by rank; None for one that left nothing, or is gone.

    Empty unless the job is a callable's that has succeeded. The digests are those in the last words of the
    pods, which the kubelet has put into their status; the job's own status has that of one rank.

    Raises `OutcomeUnreadableError` where what was left can't be had.
    """
    if found.spec.entrypoint.callable is None or not has_succeeded(found.status):
        return []
    number, gang = found.status.attempts[-1].number, derive_gang(found.spec)
    digests = {
        rank: message.sha256
        for rank, pods in group_by_rank(found, await list_pods(access, found), number).items()
        for pod in pods
        if (message := TerminationMessage.from_json(_read_last_words(pod))) is not None
        if message.ending is Ending.RETURNED and message.sha256 is not None
    }
    room = asyncio.Semaphore(READ_AT_ONCE)

    async def read(rank: int) -> KeptOutcome | None:
        async with room:
            return await _read_kept(access, found, rank, digests[rank]) if rank in digests else None

    return list(await asyncio.gather(*map(read, range(gang.hosts))))


def _read_last_words(pod: Manifest) -> str:
    return str((read_state(pod).get("terminated") or {}).get("message") or "")


async def list_pods(access: Access, job: FrayJob) -> list[Manifest]:
    """Return the pods of a job, of all its attempts."""
    labels = f"{LABEL_JOB_UID}={job.metadata.uid}"

    async def read() -> list[Manifest]:
        pages = access.api.list_pages(PODS, namespace=access.namespace, labels=labels)
        return [pod async for page in pages for pod in page.items]

    return await persistently(read)


def group_by_rank(job: FrayJob, pods: Iterable[Manifest], attempt: int) -> dict[int, list[Manifest]]:
    """Return the pods of an attempt by their rank in the gang."""
    gang = derive_gang(job.spec)
    found: dict[int, list[Manifest]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        place = gang.find_place(labels)
        if place is not None and labels.get(LABEL_ATTEMPT) == str(attempt):
            found.setdefault(gang.rank(slice_index=place[0], host=place[1]), []).append(pod)
    return found


async def _read_kept(access: Access, found: FrayJob, rank: int, sha256: str) -> KeptOutcome:
    """Return what a rank of the last attempt left that has this digest."""
    if sha256 == NOTHING.sha256:
        return KeptOutcome(NOTHING.sha256, NOTHING.data)
    last = found.status.attempts[-1]
    name = outcome_name(job_uid=found.metadata.uid or "", attempt=last.number, rank=rank)
    try:
        kept = await persistently(lambda: access.api.get(CONFIG_MAPS, name, namespace=access.namespace))
        return KeptOutcome(sha256, base64.b64decode(kept["binaryData"][OUTCOME_KEY], validate=True))
    except NotFoundError as missing:
        own = found.spec.entrypoint.callable
        if own is None or own.results_url is None:
            raise OutcomeUnreadableError(str(missing), last.story) from missing
        return KeptOutcome(sha256, url=staged_outcome_url(own.results_url, sha256), story=last.story)
    except (ApiError, KeyError, binascii.Error) as error:
        problem = f"ConfigMap {name} has none" if isinstance(error, KeyError) else str(error)
        raise OutcomeUnreadableError(problem, last.story) from error


def _is_of_the_end(job: FrayJob) -> bool:
    """Whether the last attempt's end is the job's, which may also be a time limit between attempts."""
    last = job.status.attempts[-1]
    if last.verdict == VerdictKind.SUCCESS:
        return True
    failed = find_condition(job.status, ConditionType.FAILED)
    return failed is not None and failed.status == "True" and failed.reason == last.reason


async def _not_found(access: Access, name: str) -> JobNotFoundError:
    """Return the error that tells some of the jobs that exist."""
    place = describe_place(access)
    try:
        pages = access.api.list_pages(FRAYJOBS, namespace=access.namespace, limit=NAMES_READ)
        first = await anext(aiter(pages))
    except ApiError:
        return JobNotFoundError(name, place)  # this much is known all the same
    names = sorted(job["metadata"]["name"] for job in first.items)
    return JobNotFoundError.among(name, place, names, all_read=len(names) < NAMES_READ)

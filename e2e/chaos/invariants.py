"""What may never be seen, however a job ends: in words, from everything that was seen of all jobs.

Pure. What each job must have come to is `prediction`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from e2e.chaos import oracle
from e2e.chaos.records import ActorSighting, JobSetSighting, JobSighting, PodSighting
from fray.vocabulary import AUTH_SECRET, LABEL_ACTOR, LABEL_JOB, ActorReason, ConditionType

__all__ = [
    "find_actor_faults",
    "find_duplicates",
    "find_leaks",
    "find_overlaps",
    "find_regressions",
    "find_talkative",
    "find_twins",
]

S = TypeVar("S", ActorSighting, JobSighting)
KEPT_JOBSETS = 3
EVENTS_PER_ATTEMPT = 6
EVENTS_PER_JOB = 6


def find_overlaps(sightings: Iterable[PodSighting]) -> Iterator[str]:
    """Say where two attempts of a job had pods at the same time that may run.

    The sightings are in the order of the one watch that they came from.
    """
    living: dict[str, dict[str, PodSighting]] = {}
    told: set[tuple[str, int, int]] = set()
    for pod in sightings:
        of_job = living.setdefault(pod.job, {})
        if pod.lives:
            of_job[pod.uid] = pod
        else:
            of_job.pop(pod.uid, None)
        attempts = sorted({other.attempt for other in of_job.values()})
        if len(attempts) > 1 and (pod.job, attempts[0], attempts[-1]) not in told:
            told.add((pod.job, attempts[0], attempts[-1]))
            yield f"{pod.job}: pods of attempts {attempts[0]} and {attempts[-1]} at once: " + ", ".join(
                sorted(f"{other.name} on {other.node} ({other.phase})" for other in of_job.values())
            )


def find_twins(sightings: Iterable[PodSighting]) -> Iterator[str]:
    """Say which member of an actor had two pods at the same time that may run, in the order of the watch."""
    living: dict[tuple[str, int], dict[str, PodSighting]] = {}
    told: set[frozenset[str]] = set()
    for pod in sightings:
        if pod.index is None:
            continue
        of_member = living.setdefault((pod.job, pod.index), {})
        if pod.lives:
            of_member[pod.uid] = pod
        else:
            of_member.pop(pod.uid, None)
        if len(of_member) > 1 and (uids := frozenset(of_member)) not in told:
            told.add(uids)
            pods = sorted(f"{other.name} ({other.uid[:8]}) on {other.node}" for other in of_member.values())
            yield f"{pod.job}: member {pod.index} has {len(pods)} pods at once: {', '.join(pods)}"


def find_actor_faults(sightings: Iterable[ActorSighting]) -> Iterator[str]:
    """Say where an actor's status told of several pods of a member, or took back what it told before."""
    for before, actor in _with_last(sightings):
        if (ConditionType.MULTIPLE_PODS, ("True", ActorReason.MORE_THAN_ONE_POD)) in actor.conditions.items():
            yield f"{actor.name}: its status tells of several pods of a member"
        if before is None or actor.gone:
            continue
        if before.finished and before.conditions != actor.conditions:
            yield f"{actor.name}: its conditions change after its end: {dict(actor.conditions)}"


def find_duplicates(sightings: Iterable[JobSetSighting]) -> Iterator[str]:
    """Say which attempt had more than one JobSet."""
    found: dict[tuple[str, int], dict[str, str]] = {}
    for jobset in sightings:
        found.setdefault((jobset.job, jobset.attempt), {})[jobset.uid] = jobset.name
    for (job, attempt), jobsets in found.items():
        if len(jobsets) > 1:
            yield f"{job}: attempt {attempt} had {len(jobsets)} JobSets: {', '.join(jobsets.values())}"


def find_regressions(sightings: Iterable[JobSighting]) -> Iterator[str]:
    """Say where a status took back what the one before told."""
    for before, job in _with_last(sightings):
        if before is not None and not job.gone:
            for what in oracle.find_regressions(before.status, job.status):
                yield f"{job.name}: {what}"


def _with_last(sightings: Iterable[S]) -> Iterator[tuple[S | None, S]]:
    """Yield each with the last one before it of the same name."""
    last: dict[str, S] = {}
    for seen in sightings:
        yield last.get(seen.name), seen
        last[seen.name] = seen


def find_leaks(
    objects: Mapping[str, Sequence[Mapping[str, Any]]], *, finished: Iterable[str]
) -> Iterator[str]:
    """Say what is there that shouldn't be, once all jobs have ended.

    Parameters: `objects` by their plural, `finished` the names of the FrayJobs and FrayActors that are still
    there. Jobs may keep the JobSets of their last attempts, with Jobs, a Service and pods that have ended.
    """
    known = set(finished)
    kept: dict[str, int] = {}
    for plural, found in objects.items():
        for manifest in found:
            metadata = manifest["metadata"]
            if metadata["name"] == AUTH_SECRET:
                continue  # the namespace's own
            labels = metadata.get("labels", {})
            if plural == "configmaps" and LABEL_ACTOR not in labels:
                continue
            # A JobSet's Service has no label of its own that tells of the job: its owner's name does.
            job = labels.get(LABEL_JOB) or labels.get(LABEL_ACTOR) or _guess_job(metadata)
            if job not in known:
                yield f"{plural} {metadata['name']} is left of {job or 'nobody'}"
            elif plural == "statefulsets":
                yield f"StatefulSet {metadata['name']} is there, and its actor has ended"
            elif plural == "jobsets":
                kept[job] = kept.get(job, 0) + 1
            elif plural == "pods" and manifest["status"].get("phase") not in ("Succeeded", "Failed"):
                yield f"pod {metadata['name']} of {job} is {manifest['status'].get('phase')}"
    for job, count in kept.items():
        if count > KEPT_JOBSETS:
            yield f"{job} keeps {count} JobSets"


def _guess_job(metadata: Mapping[str, Any]) -> str | None:
    owners = [owner["name"] for owner in metadata.get("ownerReferences", []) if owner.get("controller")]
    return owners[0].rpartition("-a")[0] if owners else None


def find_talkative(events: Mapping[str, int], attempts: Mapping[str, int]) -> Iterator[str]:
    """Say about which FrayJob there are more events than its attempts explain; both by its name."""
    for job, count in events.items():
        most = EVENTS_PER_JOB + EVENTS_PER_ATTEMPT * attempts.get(job, 0)
        if count > most:
            yield f"{job}: {count} events about {attempts.get(job, 0)} attempts"

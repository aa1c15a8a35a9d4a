"""Everything that is wrong after a campaign, each with the story of the job that it is about. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from e2e.chaos.invariants import (
    find_actor_faults,
    find_duplicates,
    find_overlaps,
    find_regressions,
    find_talkative,
    find_twins,
)
from e2e.chaos.oracle import find_mismatch
from e2e.chaos.plan import ActorPlan, JobPlan, Kind
from e2e.chaos.prediction import predict
from e2e.chaos.records import JobSetSighting, PodSighting, Records
from fray.vocabulary import ConditionType, Reason

__all__ = ["judge", "judge_actors", "judge_end", "tell_story"]

_STOPPED = {
    ConditionType.ACCEPTED: ("True", Reason.VALID),
    ConditionType.READY: ("False", Reason.STOP_REQUESTED),
    ConditionType.FINISHED: ("True", Reason.STOP_REQUESTED),
}
"""The conditions of an actor that its user has stopped."""


def judge(plans: Sequence[JobPlan], records: Records, events: Mapping[str, int]) -> list[str]:
    """Return in words what must not be, of all jobs that were submitted.

    `events` is the number of Events about each FrayJob, by its name.
    """
    wrong = [*find_duplicates(records.jobsets), *find_overlaps(records.pods), *find_regressions(records.jobs)]
    wrong += find_talkative(events, {plan.name: records.last_attempt(plan.name) for plan in plans})
    by_name = {plan.name: plan for plan in plans}
    told = [f"{line}\n{tell_story(by_name[name], records)}" for line, name in _with_job(wrong, by_name)]
    for plan in plans:
        problem = judge_end(plan, records)
        if problem is not None:
            told.append(f"{plan.name}: {problem}\n{tell_story(plan, records)}")
    return told


def judge_actors(plans: Sequence[ActorPlan], records: Records) -> list[str]:
    """Return in words what must not be, of all actors that were submitted."""
    wrong = [*find_twins(records.pods), *find_actor_faults(records.actors)]
    last = {actor.name: actor for actor in records.actors}
    for plan in plans:
        actor = last.get(plan.name)
        if actor is None:
            wrong.append(f"{plan.name}: its FrayActor was never seen")
        elif actor.gone is not plan.leaves:
            wrong.append(f"{plan.name}: its FrayActor is {'gone' if actor.gone else 'still there'}")
        elif not plan.leaves and dict(actor.conditions) != _STOPPED:
            wrong.append(f"{plan.name}: it was stopped, and its conditions are {dict(actor.conditions)}")
    return [f"{line}\n{_tell_actor(line.partition(':')[0], records)}" for line in wrong]


def _tell_actor(name: str, records: Records) -> str:
    """Return what happened to an actor, a line each, in the order of time."""
    lines = [(hit.at, f"pod {hit.how} ({hit.uid[:8]})") for hit in records.hits if hit.job == name]
    lines += [(pod.at, _describe(pod)) for pod in _changes([pod for pod in records.pods if pod.job == name])]
    lines += [
        (actor.at, f"status: {'gone' if actor.gone else dict(actor.conditions)}, {actor.restarts} restarts")
        for actor in records.actors
        if actor.name == name
    ]
    return "\n".join(f"    {_clock(at)} {what}" for at, what in sorted(lines))


def _with_job(lines: Sequence[str], plans: Mapping[str, JobPlan]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name = line.partition(":")[0]
        assert name in plans, line
        yield line, name


def judge_end(plan: JobPlan, records: Records) -> str | None:
    """Return in words how a job has ended otherwise than predicted, None when it hasn't."""
    last = records.last_job(plan.name)
    if last is None:
        return "its FrayJob was never seen"
    leaves = plan.kind in (Kind.DELETED, Kind.EXPIRES)
    if last.gone is not leaves:
        return "its FrayJob is gone" if last.gone else "its FrayJob is still there"
    return None if plan.kind is Kind.DELETED else find_mismatch(predict(plan, records), last.status)


def tell_story(plan: JobPlan, records: Records) -> str:
    """Return what happened to a job, a line each, in the order of time."""
    work = "until it is ended" if plan.seconds is None else f"{plan.seconds} s"
    head = (
        f"    works {work}; exits with {plan.exit_code} in its first {plan.failing} attempts; "
        f"retries.failures {plan.failures}; ttl {plan.ttl}"
    )
    hits = [hit for hit in records.hits if hit.job == plan.name]
    lines = [(hit.at, f"pod of attempt {hit.attempt} {hit.how} ({hit.uid[:8]})") for hit in hits]
    acts = [act for act in records.acts if act.job == plan.name]
    lines += [(act.at, f"user: {act.act.value} (attempt {act.attempt})") for act in acts]
    lines += [
        (jobset.at, f"JobSet {jobset.name} {'is gone' if jobset.gone else 'seen'}")
        for jobset in _firsts_and_lasts(plan.name, records)
    ]
    pods = [pod for pod in records.pods if pod.job == plan.name]
    lines += [(pod.at, _describe(pod)) for pod in _changes(pods)]
    nodes = {pod.node for pod in pods}
    for outage in records.outages:
        if outage.host in nodes:
            lines.append((outage.begin, f"{outage.host}: {outage.how}"))
            lines.append((outage.end, f"{outage.host}: back"))
    lines += [
        (job.at, f"status: {job.phase}, attempt {job.attempt}, verdicts {dict(job.verdicts)}")
        for job in records.jobs
        if job.name == plan.name
    ]
    last = records.last_job(plan.name)
    attempts = last.status.get("attempts", []) if last is not None else []
    tail = [f"    attempt {one['number']}: {one.get('reason')}: {one.get('message', '')}" for one in attempts]
    return "\n".join([head, *(f"    {_clock(at)} {what}" for at, what in sorted(lines)), *tail])


def _firsts_and_lasts(job: str, records: Records) -> Iterator[JobSetSighting]:
    seen: set[str] = set()
    for jobset in records.jobsets:
        if jobset.job == job and (jobset.gone or jobset.uid not in seen):
            seen.add(jobset.uid)
            yield jobset


def _changes(pods: Sequence[PodSighting]) -> Iterator[PodSighting]:
    """Give the sightings of pods that tell something new."""
    last: dict[str, str] = {}
    for pod in pods:
        if last.get(pod.uid) != _describe(pod):
            last[pod.uid] = _describe(pod)
            yield pod


def _describe(pod: PodSighting) -> str:
    state = "gone" if pod.gone else pod.phase + (", ending" if pod.ending else "")
    code = "" if pod.exit_code is None else f", exit code {pod.exit_code}"
    why = "" if pod.reason is None else f", {pod.reason}"
    return f"pod {pod.name} ({pod.uid[:8]}) on {pod.node}: {state}{code}{why}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]

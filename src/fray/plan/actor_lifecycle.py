"""One step of a FrayActor: what there is of it, what to tell about it, and what to do next.

`decide_actor` is pure. The status is derived anew from the StatefulSet, its pods, and what the members report
in ConfigMaps of their own; of a member without a pod it keeps what was known last. Members that are TPU
slices of several hosts have JobSets in place of the StatefulSet (`actor_slices`); all else is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from fray.actor_reasons import get_actor_row
from fray.plan.actor_nodes import derive_node_history
from fray.plan.actor_set import build_actor_labels, derive_member, name_avoided
from fray.plan.actor_slices import EndSlice, SlicePlan, StartSlice, plan_slice, read_index
from fray.plan.complaints import (
    Complaint,
    derive_volume_waiting,
    find_held,
    is_volume_missing,
    list_create_failures,
)
from fray.plan.manifests import Manifest, find_condition, has_ended, read_label
from fray.plan.node_evidence import TAINT_OUT_OF_SERVICE
from fray.plan.node_faults import find_release
from fray.plan.observation import Waiting
from fray.plan.pod import PAYLOAD_VOLUME
from fray.plan.pod_disruption import read_deletion
from fray.plan.pod_observation import is_ending
from fray.plan.scheduling import derive_waiting
from fray.plan.settings import RetryPolicy
from fray.plan.status import Claim, build_conditions
from fray.plan.texts import clean_text, flatten
from fray.plan.timestamps import format_time
from fray.plan.worker_observation import find_crash
from fray.vocabulary import (
    ANNOTATION_AVOIDED,
    FRAYJOB_KIND,
    LABEL_COMPLETION_INDEX,
    LABEL_JOBSET_UID,
    ActorReason,
    ConditionType,
    Reason,
)
from fray.wire.frayactor import (
    ActorError,
    FrayActor,
    FrayActorStatus,
    HostedEntrypoint,
    MemberStatus,
)

__all__ = [
    "ActorDecision",
    "ActorObservation",
    "CreateMembers",
    "RebuildMembers",
    "RemoveMembers",
    "RootState",
    "ScaleMembers",
    "decide_actor",
    "derive_ready",
    "find_lacking",
    "read_root",
]

ACTOR_ERROR: Final = ("type", "message", "traceback")
MOST_TRACEBACK: Final = 1500
LATE: Final = timedelta(minutes=1)
"""How much longer than it was given a pod may take to end before its node is taken for silent."""
PAYLOAD_SECONDS: Final = 60.0
"""How long a first pod waits for the payload, whose Secrets the creator writes right after the FrayActor."""


@dataclass(frozen=True)
class RootState:
    """What a job-scoped actor needs to know of its root job; `end` says how that ended, None until then."""

    suspended: bool = False
    end: str | None = None


@dataclass(frozen=True)
class ActorObservation:
    """What there is of an actor at one moment.

    `members` is its StatefulSet, `jobsets` are what it has instead where its members are on several hosts;
    `gone` are pods of them that aren't there any more, as they were last.
    `reports` are the members' ConfigMaps, `complaints` are about volumes of the pods, and about pods that
    can't be made. `refusal` says why the StatefulSet can't be made that was tried last. `root` is None where
    the actor is detached. `host` is the pod of the process that hosts the actor, if it is there. `strangers`
    are pods with the actor's labels that neither controls: they call themselves members all the same.
    """

    members: Manifest | None = None
    pods: Sequence[Manifest] = ()
    reports: Sequence[Manifest] = ()
    complaints: Sequence[Complaint] = ()
    root: RootState | None = None
    refusal: Waiting | None = None
    gone: Sequence[Manifest] = ()
    host: Manifest | None = None
    strangers: Sequence[Manifest] = ()
    jobsets: Sequence[Manifest] = ()


@dataclass(frozen=True)
class CreateMembers:
    """Create the StatefulSet."""

    replicas: int


@dataclass(frozen=True)
class ScaleMembers:
    """Give the StatefulSet another number of pods."""

    replicas: int


@dataclass(frozen=True)
class RebuildMembers:
    """Give the StatefulSet the template that the status asks for; the pods that run stay."""

    replicas: int


@dataclass(frozen=True)
class RemoveMembers:
    """Delete the StatefulSet with its pods."""


@dataclass(frozen=True)
class ActorDecision:
    """What to write, and then what to do: with the StatefulSet, or with JobSets.

    `wake_at` is when to look again although nothing has changed, None for never.
    """

    status: FrayActorStatus
    action: CreateMembers | ScaleMembers | RebuildMembers | RemoveMembers | None = None
    slices: Sequence[StartSlice | EndSlice] = ()
    wake_at: datetime | None = None


@dataclass(frozen=True)
class _Ending:
    reason: Reason | ActorReason
    message: str


def read_root(actor: FrayActor, root: Manifest | None) -> RootState:
    """Return how things stand with an actor's root job, of the FrayJob that has its name now, if one has."""
    name = actor.spec.root_job
    if root is None or is_ending(root) or not actor.has_root(name, root["metadata"]["uid"]):
        bound = any(owner.get("kind") == FRAYJOB_KIND for owner in actor.metadata.owner_references)
        end = (
            f"its root job {name} was deleted"
            if bound
            else f"there is no job {name}: make it before its actors"
        )
        return RootState(end=end)
    if find_condition(root, ConditionType.FINISHED, status="True"):
        return RootState(end=f"its root job {name} has ended")
    return RootState(suspended=bool((root.get("spec") or {}).get("suspend")))


def find_lacking(actor: FrayActor, observed: ActorObservation) -> list[Manifest]:
    """Return which of an actor's StatefulSet and JobSets have fewer pods than they should."""
    members, hosts = observed.members, derive_member(actor).hosts
    wanted = [(each, hosts) for each in observed.jobsets if not (each.get("spec") or {}).get("suspend")]
    if members is not None:
        wanted.append((members, (members.get("spec") or {}).get("replicas") or 0))
    return [
        owner
        for owner, count in wanted
        if not is_ending(owner) and len(_select_made(owner, observed.pods)) < count
    ]


def decide_actor(
    actor: FrayActor, observed: ActorObservation, *, now: datetime, policy: RetryPolicy
) -> ActorDecision:
    """Return the status of an actor that hasn't finished, and the next step towards what is asked for."""
    ending = _derive_ending(actor, observed, now)
    suspended = actor.spec.suspend or (observed.root is not None and observed.root.suspended)
    hosted = actor.spec.entrypoint.hosted
    wanted = 0 if ending or suspended or hosted else actor.spec.replicas
    plans: dict[int, SlicePlan] | None = None
    if hosted:
        members = [_derive_hosted(actor, observed)]
    elif (shape := derive_member(actor)).multi_host_slices:
        plans = _plan_slices(actor, observed, wanted, policy, now)
        members = _derive_slices(actor, observed, plans, shape.hosts, now)
    else:
        members = _derive_members(actor, observed, now)
    finished = ending is not None and not (observed.members or observed.jobsets or observed.pods)
    claims = [
        *_accept(observed.refusal),
        derive_ready(members, suspended=suspended, ending=ending),
        *_suspend(actor, suspended=suspended and not ending),
        *_tell_multiple(actor.status, observed),
        Claim(ConditionType.FINISHED, True, ending.reason, ending.message)
        if ending and finished
        else Claim(ConditionType.FINISHED, False, Reason.IN_PROGRESS, "the actor has not ended yet"),
    ]
    previous, generation = actor.status, actor.metadata.generation
    nodes = derive_node_history(
        previous,
        [*observed.gone, *observed.pods],
        spot=actor.spec.placement.spot == "Required",
        seconds=policy.avoid_seconds,
        now=now,
    )
    status = FrayActorStatus(
        observed_generation=generation,
        ready=f"{sum(member.ready for member in members)}/{len(members)}",
        replicas=len({read_index(pod) for pod in observed.pods}),
        restarts=sum(member.restarts for member in members),
        selector=",".join(f"{label}={value}" for label, value in build_actor_labels(actor).items()),
        completion_time=format_time(now) if finished else None,
        conditions=build_conditions(claims, previous.conditions, generation=generation, now=now),
        members=members,
        node_faults=list(nodes.faults),
        avoided_nodes=list(nodes.avoided),
    )
    if plans is not None:
        moments = [find_release(nodes.avoided), *(plan.start_after for plan in plans.values())]
        return ActorDecision(
            status,
            slices=[step for plan in plans.values() for step in plan.steps],
            wake_at=min((at for at in moments if at is not None), default=None),
        )
    action = _derive_action(
        observed.members, wanted=wanted, over=ending is not None, avoided=name_avoided(status)
    )
    return ActorDecision(status, action, wake_at=find_release(nodes.avoided))


def _derive_ending(actor: FrayActor, observed: ActorObservation, now: datetime) -> _Ending | None:
    if actor.spec.stopped:
        return _Ending(Reason.STOP_REQUESTED, "spec.stopped is true")
    if observed.root is not None and observed.root.end is not None:
        return _Ending(ActorReason.ROOT_JOB_ENDED, observed.root.end)
    if (hosted := actor.spec.entrypoint.hosted) and (end := _find_host_end(hosted, observed.host)):
        return _Ending(ActorReason.HOST_ENDED, end)
    payload = actor.spec.entrypoint.callable
    if payload is not None and _lacks_payload(actor.status, observed, now):
        missing = f"Secret {payload.secret_name} was never written: its creator died before that"
        return _Ending(Reason.PAYLOAD_MISSING, missing)
    return _recall_end(actor.status) or _derive_rest(actor, observed)


def _find_host_end(hosted: HostedEntrypoint, host: Manifest | None) -> str | None:
    """Return why the process has ended that hosts an actor, as its pod tells; None while it may live."""
    if host is None or host["metadata"]["uid"] != hosted.pod_uid:
        return f"pod {hosted.pod}, a process of which hosted it, is gone"
    if has_ended(host):
        return f"pod {hosted.pod}, a process of which hosted it, has ended"
    return None


def _recall_end(before: FrayActorStatus) -> _Ending | None:
    """Return the end that the members have decided: it stays so when they are gone, who reported it."""
    for each in before.conditions:
        if get_actor_row(each.reason).by_members:
            return _Ending(ActorReason(each.reason), each.message)
    return None


def _derive_rest(actor: FrayActor, observed: ActorObservation) -> _Ending | None:
    """Return why an actor is to end that nobody needs: each member is idle, has ended itself or failed."""
    living = {pod["metadata"]["uid"] for pod in observed.pods if not is_ending(pod)}
    reports = {
        each["metadata"]["name"]: data
        for each in observed.reports
        if (data := each.get("data") or {}).get("podUid") in living
    }
    failed = {member.index for member in actor.status.members if member.failed}
    of_members = [
        {"exhausted": "true"} if index in failed else reports.get(f"{actor.metadata.name}-{index}", {})
        for index in range(actor.spec.replicas)
    ]
    seconds = actor.spec.idle_seconds
    idle = seconds is not None and any(data.get("idle") == "true" for data in of_members)
    ended = any(data.get("ended") for data in of_members)
    if not (idle or ended) or not all(_is_at_rest(data) for data in of_members):
        return None
    if idle:
        return _Ending(ActorReason.IDLE, f"no member was called for {seconds} s")
    return _Ending(ActorReason.MEMBERS_ENDED, "its members have ended themselves")


def _is_at_rest(data: Mapping[str, str]) -> bool:
    return data.get("idle") == "true" or bool(data.get("ended")) or data.get("exhausted") == "true"


def _lacks_payload(before: FrayActorStatus, observed: ActorObservation, now: datetime) -> bool:
    """Return whether the payload of an actor that has never started isn't there, and won't come any more.

    Once decided it stays so: nobody complains any more when the pods are gone.
    """
    if any(each.reason == Reason.PAYLOAD_MISSING for each in before.conditions):
        return True
    if any(member.start_number or member.restarts for member in before.members):
        return False
    held = find_held(observed.pods, now=now)
    return is_volume_missing(PAYLOAD_VOLUME, held, observed.complaints, seconds=PAYLOAD_SECONDS, now=now)


def _derive_action(
    members: Manifest | None, *, wanted: int, over: bool, avoided: str
) -> CreateMembers | ScaleMembers | RebuildMembers | RemoveMembers | None:
    if members is None:
        # One that is suspended or empty has no pods to make yet.
        return CreateMembers(wanted) if wanted else None
    if is_ending(members):
        return None
    if over:
        return RemoveMembers()
    current = (members.get("spec") or {}).get("replicas")
    if (members["metadata"].get("annotations") or {}).get(ANNOTATION_AVOIDED, "") != avoided:
        return RebuildMembers(wanted)
    return None if current == wanted else ScaleMembers(wanted)


# --- conditions -----------------------------------------------------------------------------------------


def _accept(refusal: Waiting | None) -> Iterable[Claim]:
    if refusal is not None:
        yield Claim(ConditionType.ACCEPTED, False, refusal.reason, refusal.message)
    else:
        yield Claim(ConditionType.ACCEPTED, True, Reason.VALID, "the spec can be run")


def derive_ready(members: Sequence[MemberStatus], *, suspended: bool, ending: _Ending | None) -> Claim:
    """Return the condition Ready of an actor with these members."""
    if ending is not None:
        return Claim(ConditionType.READY, False, ending.reason, ending.message)
    if suspended:
        return Claim(ConditionType.READY, False, Reason.SUSPENDED, "it or its root job is suspended")
    message = f"{sum(member.ready for member in members)} of {len(members)} members take calls"
    if all(member.ready for member in members):
        return Claim(ConditionType.READY, True, ActorReason.ALL_MEMBERS_READY, message)
    awaited = [member for member in members if not member.ready and not member.ended]
    reason = ActorReason.MEMBERS_STARTING if awaited else ActorReason.SOME_MEMBERS_ENDED
    first = next(member for member in awaited or members if not member.ready)
    for member in awaited:
        if member.failed or member.start_after or member.last_error is not None:
            reason, first = ActorReason.MEMBER_FAILED, member
            break
    error = None if first.ended else first.last_error
    causes = [*([f"{error.type}: {error.message}"] if error else []), *filter(None, [first.message])]
    if causes:
        message += f"; member {first.index}: {'; '.join(causes)}"
    return Claim(ConditionType.READY, False, reason, message)


def _suspend(actor: FrayActor, *, suspended: bool) -> Iterable[Claim]:
    """Yield the condition from the first time on that it is true."""
    if suspended:
        yield Claim(ConditionType.SUSPENDED, True, Reason.SUSPENDED, "it or its root job is suspended")
    elif any(condition.type == ConditionType.SUSPENDED for condition in actor.status.conditions):
        yield Claim(ConditionType.SUSPENDED, False, Reason.IN_PROGRESS, "the actor is not suspended")


def _tell_multiple(before: FrayActorStatus, observed: ActorObservation) -> Iterable[Claim]:
    """Yield the condition from the first time on that some member has more than one pod that lives."""
    members: dict[tuple[str, str], dict[str, str]] = {}
    for pod in (*observed.pods, *observed.strangers):
        index, host = read_index(pod), _read_host(pod)
        # One that is being deleted lives until it is gone.
        if index is not None and not has_ended(pod):
            node = (pod.get("spec") or {}).get("nodeName")
            where = f"{pod['metadata']['name']} on node {node}" if node else pod["metadata"]["name"]
            members.setdefault((index, host), {})[pod["metadata"]["uid"]] = where
    several = {place: sorted(pods.values()) for place, pods in members.items() if len(pods) > 1}
    if several:
        place = min(several, key=lambda each: (len(each[0]), *each))
        whose = f"host {place[1]} of member {place[0]}" if place[1] else f"member {place[0]}"
        text = f"{whose} has {len(several[place])} pods: {', '.join(several[place])}"
        more = f", and {len(several) - 1} more members have several" if len(several) > 1 else ""
        message = flatten(f"{text}{more}; delete all of a member's pods but one", most=512)
        yield Claim(ConditionType.MULTIPLE_PODS, True, ActorReason.MORE_THAN_ONE_POD, message)
    elif any(condition.type == ConditionType.MULTIPLE_PODS for condition in before.conditions):
        message = "no member has more than one pod"
        yield Claim(ConditionType.MULTIPLE_PODS, False, ActorReason.ONE_POD_EACH, message)


# --- members --------------------------------------------------------------------------------------------


def _derive_members(actor: FrayActor, observed: ActorObservation, now: datetime) -> list[MemberStatus]:
    pods = {read_index(pod): pod for pod in observed.pods}
    waiting: dict[str | None, Waiting | None] = {
        (at := str(index)): _derive_waiting([pods[at]], observed, now)
        if at in pods
        else _derive_waiting([], observed, now, maker=observed.members)
        for index in range(actor.spec.replicas)
    }
    return _derive_each(actor, observed, pods, waiting)


def _plan_slices(
    actor: FrayActor, observed: ActorObservation, wanted: int, policy: RetryPolicy, now: datetime
) -> dict[int, SlicePlan]:
    """Return what becomes of each member that is a slice, also of those that are too many by now."""
    jobsets: dict[int, list[Manifest]] = {index: [] for index in range(actor.spec.replicas)}
    for jobset in observed.jobsets:
        index = read_index(jobset) or ""
        jobsets.setdefault(_read_number(index), []).append(jobset)
    living = [pod for pod in observed.strangers if not has_ended(pod)]
    taken = {read_index(pod) for pod in (*observed.pods, *living)}
    before = {member.index: member for member in actor.status.members}
    limit = actor.spec.max_restarts
    return {
        index: plan_slice(
            before.get(index) or MemberStatus(index=index),
            wanted=index < wanted,
            restarts=None if limit is None or limit < 0 else limit,
            jobsets=own,
            occupied=str(index) in taken,
            policy=policy,
            now=now,
        )
        for index, own in jobsets.items()
    }


def _derive_slices(
    actor: FrayActor,
    observed: ActorObservation,
    plans: Mapping[int, SlicePlan],
    hosts: int,
    now: datetime,
) -> list[MemberStatus]:
    """Return how the members fare that are slices: each is where its first host is, and ready on all."""
    first: dict[str | None, Manifest] = {}
    waiting: dict[str | None, Waiting | None] = {}
    whole = set[int]()
    lacking: dict[int, str | None] = {}
    for index in range(actor.spec.replicas):
        current = plans[index].current
        uid = None if current is None else current["metadata"]["uid"]
        every = [pod for pod in observed.pods if read_index(pod) == str(index)]
        own = {
            _read_host(pod): pod
            for pod in every
            if read_label(pod, LABEL_JOBSET_UID) == uid and not is_ending(pod)
        }
        maker = current if len(own) < hosts else None
        waiting[str(index)] = _derive_waiting(every, observed, now, maker=maker)
        if uid is not None and "0" in own:
            first[str(index)] = own["0"]
        if len(own) == hosts and not any(map(has_ended, own.values())):
            whole.add(index)
        else:
            # The first host alone may be ready.
            lacking[index] = _tell(waiting[str(index)])
    why = "has the labels of this member, and isn't of its JobSet: the JobSet is made once that pod is gone"
    strangers = {
        read_index(pod): f"pod {pod['metadata']['name']} {why}"
        for pod in observed.strangers
        if not has_ended(pod)
    }
    return [
        member.model_copy(
            update={
                "attempt": (plan := plans[member.index]).attempt,
                "begun": plan.begun,
                "ends_in_a_row": plan.ends,
                "start_after": plan.start_after and format_time(plan.start_after),
                "failed": plan.failed or member.failed,
                "ready": member.ready and member.index in whole,
                "restarts": max(member.restarts, plan.begun - 1),
                "message": member.message
                or lacking.get(member.index)
                or _describe_pause(plan)
                or strangers.get(str(member.index)),
            }
        )
        for member in _derive_each(actor, observed, first, waiting)
    ]


def _tell(waiting: Waiting | None) -> str | None:
    """Return why a member waits, in a line."""
    return None if waiting is None else flatten(waiting.message, most=512)


def _describe_pause(plan: SlicePlan) -> str | None:
    """Return when a member gets its next JobSet and why it waits, None where it doesn't."""
    if plan.start_after is None:
        return None
    ended = "its JobSet ended" if plan.ends == 1 else f"its last {plan.ends} JobSets ended"
    return f"{ended}; attempt {plan.attempt} starts at {format_time(plan.start_after)}"


def _derive_waiting(
    pods: Sequence[Manifest],
    observed: ActorObservation,
    now: datetime,
    *,
    maker: Manifest | None = None,
) -> Waiting | None:
    """Return why a member doesn't run, of which these are the pods; None where nothing is known.

    `maker` is what is to make its pods, where some are missing.
    """
    for pod in pods:
        if is_ending(pod) and (overdue := _derive_overdue(pod, now)):
            return overdue
    staying = [pod for pod in pods if not is_ending(pod)]
    failures = list[str]()
    if maker is not None:
        made = _select_made(maker, [*observed.pods, *observed.gone])
        failures = list_create_failures(maker, observed.complaints, made=made)
    return derive_waiting(staying, create_failures=failures) or derive_volume_waiting(
        find_held(staying, now=now), observed.complaints, now=now
    )


def _select_made(maker: Manifest, pods: Iterable[Manifest]) -> list[Manifest]:
    """Return which pods of an actor its StatefulSet has made, or this one of its JobSets."""
    uid = maker["metadata"]["uid"]
    return [pod for pod in pods if read_label(pod, LABEL_JOBSET_UID) in (None, uid)]


def _derive_each(
    actor: FrayActor,
    observed: ActorObservation,
    pods: Mapping[str | None, Manifest],
    waiting: Mapping[str | None, Waiting | None],
) -> list[MemberStatus]:
    reports = {report["metadata"]["name"]: report for report in observed.reports}
    before = {member.index: member for member in actor.status.members}
    return [
        _derive_member(
            index,
            pods.get(str(index)),
            waiting.get(str(index)),
            (reports.get(f"{actor.metadata.name}-{index}") or {}).get("data") or {},
            before.get(index) or MemberStatus(index=index),
        )
        for index in range(actor.spec.replicas)
    ]


def _read_host(pod: Manifest) -> str:
    """Return which host of its member a pod is; empty where that has one."""
    return read_label(pod, LABEL_COMPLETION_INDEX) or ""


def _derive_hosted(actor: FrayActor, observed: ActorObservation) -> MemberStatus:
    """Return how an actor fares that a process hosts, as that process tells."""
    hosted = actor.spec.entrypoint.hosted
    assert hosted is not None
    name, host = f"{actor.metadata.name}-0", observed.host
    report: Manifest = next(
        (each.get("data") or {} for each in observed.reports if each["metadata"]["name"] == name), {}
    )
    reported = report.get("podUid") == hosted.pod_uid
    there = host is not None and _find_host_end(hosted, host) is None
    return MemberStatus(
        index=0,
        pod=hosted.pod,
        pod_uid=hosted.pod_uid,
        node=((host or {}).get("spec") or {}).get("nodeName"),
        address=((host or {}).get("status") or {}).get("podIP"),
        start_number=_read_number(report.get("startNumber")) if reported else 0,
        ready=there and reported and report.get("ready") == "true",
    )


def _derive_overdue(pod: Manifest, now: datetime) -> Waiting | None:
    """Return why a member has no other pod yet although this one should be gone; None while it has time."""
    deletion = read_deletion(pod["metadata"])
    if deletion is None or now < deletion.due + LATE:
        return None
    node = (pod.get("spec") or {}).get("nodeName")
    return Waiting(
        Reason.HOSTS_LEFT_OVER,
        f"pod {pod['metadata']['name']} doesn't end, so its node {node} seems not to answer; another one "
        f"comes once that node answers, is deleted, or has the taint {TAINT_OUT_OF_SERVICE}",
    )


def _derive_member(
    index: int, pod: Manifest | None, waiting: Waiting | None, report: Manifest, before: MemberStatus
) -> MemberStatus:
    """Return how a member fares; a report counts while it is about the pod that there is."""
    error = _read_error(report.get("lastError")) or before.last_error
    if pod is None or is_ending(pod):
        return MemberStatus(
            index=index,
            pod_uid=before.pod_uid,
            start_number=before.start_number,
            ended=before.ended,
            restarts=before.restarts,
            last_error=error,
            message=_tell(waiting),
        )
    metadata, status = pod["metadata"], pod.get("status") or {}
    uid = metadata["uid"]
    reported = report.get("podUid") == uid
    number = _read_number(report.get("startNumber")) if reported else 0
    ready = bool(find_condition(pod, "Ready", status="True"))
    ended = report.get("ended") if reported else None
    crash = find_crash([pod])
    fallen = None if crash is None else crash.story
    problem = waiting.message if waiting is not None else ended or fallen
    return MemberStatus(
        index=index,
        pod=metadata["name"],
        pod_uid=uid,
        node=(pod.get("spec") or {}).get("nodeName"),
        address=status.get("podIP"),
        start_number=number,
        ready=ready,
        failed=reported and report.get("exhausted") == "true",
        ended=bool(ended) if reported else before.ended,
        restarts=max(before.restarts, _read_number(report.get("restarts")) if reported else 0),
        last_error=error,
        message=None if ready or problem is None else flatten(problem, most=512),
    )


def _read_number(text: object) -> int:
    """Return a number of a report, which may say anything: what is no number, or a huge one, is 0."""
    if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    return 0


def _read_error(text: object) -> ActorError | None:
    """Return the exception in a report, None where there is none that can be read.

    Of its parts so much is kept that the largest group fits into one object.
    """
    if not isinstance(text, str) or not text:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        return None
    kind, message, traceback = (clean_text(str(record.get(part) or "")) for part in ACTOR_ERROR)
    return ActorError(
        type=flatten(kind, most=128),
        message=flatten(message, most=512),
        traceback=traceback[-MOST_TRACEBACK:],
    )

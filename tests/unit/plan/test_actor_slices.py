"""Members that are TPU slices of several hosts: which JobSets they have, and how they fare."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.actor_lifecycle import ActorDecision, ActorObservation, decide_actor, find_lacking
from fray.plan.actor_set import build_actor_set, build_actor_slice
from fray.plan.actor_slices import EndSlice, StartSlice
from fray.plan.complaints import Complaint
from fray.plan.settings import PlanSettings, RetryPolicy
from fray.plan.timestamps import format_time
from fray.vocabulary import (
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_JOBSET_UID,
    LABEL_POD_INDEX,
)
from fray.wire.frayactor import FrayActor, FrayActorStatus, MemberStatus

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PAUSE = timedelta(seconds=10)
POLICY = RetryPolicy(PAUSE.total_seconds(), 60.0, avoid_seconds=0.0)
GONE = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def actor(status: FrayActorStatus | None = None, **spec: Any) -> FrayActor:
    found = FrayActor.from_manifest(
        {
            "metadata": {"name": "scorer", "namespace": "team", "uid": "u1", "generation": 1},
            "spec": {
                "name": "scorer",
                "entrypoint": {"class": "app:Scorer"},
                "resources": {"tpu": {"type": "v5p-16"}},
                **spec,
            },
        }
    )
    return found.model_copy(update={"status": status or FrayActorStatus()})


def jobset(index: int, attempt: int, *, end: str = "", **metadata: Any) -> dict[str, Any]:
    labels = {LABEL_POD_INDEX: str(index), LABEL_ATTEMPT: str(attempt)}
    name = f"scorer-{index}-a{attempt}"
    ended = [{"type": end, "status": "True"}] if end else []
    metadata = {"creationTimestamp": format_time(NOW)} | metadata
    return {
        "metadata": {"name": name, "uid": f"{name}-uid", "labels": labels, **metadata},
        "status": {"conditions": ended},
    }


def pods(index: int, attempt: int, *, ready: bool = True, **metadata: Any) -> list[dict[str, Any]]:
    name = f"scorer-{index}-a{attempt}"
    return [
        {
            "metadata": {
                "name": f"{name}-slice-0-{host}-abcde",
                "uid": f"{name}-{host}",
                "creationTimestamp": format_time(NOW),
                "labels": {
                    LABEL_POD_INDEX: str(index),
                    LABEL_COMPLETION_INDEX: str(host),
                    LABEL_JOBSET_UID: f"{name}-uid",
                },
                **metadata,
            },
            "status": {
                "phase": "Running",
                "podIP": f"10.0.{index}.{host}",
                "conditions": [{"type": "Ready", "status": str(ready)}],
            },
        }
        for host in range(2)
    ]


def report(index: int, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": f"scorer-{index}"}, "data": data}


def decide(found: FrayActor, *, now: datetime = NOW, **observed: Any) -> ActorDecision:
    return decide_actor(found, ActorObservation(**observed), now=now, policy=POLICY)


def go_on(
    found: FrayActor, decision: ActorDecision, *, now: datetime = NOW, **observed: Any
) -> ActorDecision:
    return decide(found.model_copy(update={"status": decision.status}), now=now, **observed)


def test_each_member_gets_a_jobset_of_its_own() -> None:
    decision = decide(actor(replicas=2))
    assert (decision.action, decision.slices) == (None, [StartSlice(0, 1), StartSlice(1, 1)])
    assert [member.attempt for member in decision.status.members] == [1, 1], "written before it is made"
    assert decide(actor(replicas=0)).slices == []
    assert decide(actor(suspend=True)).slices == []
    there = decide(actor(replicas=2), jobsets=[jobset(0, 1)])
    assert there.slices == [StartSlice(1, 1)]


def test_a_member_on_one_host_has_none() -> None:
    found = actor(resources={"tpu": {"type": "v6e-4"}})
    decision = decide(found)
    assert decision.action is not None
    assert decision.slices == ()


def test_a_member_is_where_its_first_host_is_and_ready_on_all() -> None:
    own = pods(0, 1)
    told = report(0, podUid=own[0]["metadata"]["uid"], startNumber="1", restarts="0")
    found = decide(actor(), jobsets=[jobset(0, 1)], pods=own, reports=[told]).status
    (member,) = found.members
    assert (member.pod, member.address) == ("scorer-0-a1-slice-0-0-abcde", "10.0.0.0")
    assert (member.pod_uid, member.start_number) == ("scorer-0-a1-0", 1)
    assert (member.ready, found.ready, found.replicas, member.restarts) == (True, "1/1", 1, 0)
    alone = decide(actor(), jobsets=[jobset(0, 1)], pods=own[:1], reports=[told]).status
    assert not alone.members[0].ready
    assert not any(condition.type == "MultiplePods" for condition in found.conditions)


def test_a_member_says_why_its_pods_can_not_be_made() -> None:
    def says(job: str, *, own: int = 0, later: float = 0.0) -> str | None:
        said = NOW + timedelta(seconds=later)
        told = Complaint(
            "Job", job, "j1", 'Error creating: pods "x-0-abc" is forbidden: no account', said, said
        )
        found = {"jobsets": [jobset(0, 1), jobset(1, 1)], "pods": [*pods(0, 1)[:own], *pods(1, 1)]}
        status = decide(actor(replicas=2), complaints=[told], **found).status
        assert status.members[1].message is None
        return status.members[0].message

    refused = "the cluster refused to create it (pods): Error creating: a pod is forbidden: no account"
    assert says("scorer-0-a1-slice-0") == refused
    assert says("scorer-0-a1-slice-0", own=1) == refused
    assert says("scorer-0-a1-slice-0", own=2) is None, "it has all"
    assert says("scorer-0-a1-slice-0", later=-1) is None, "that was an earlier JobSet of the name"
    assert says("scorer-1-a1-slice-0") is None
    assert says("scorer-0-a2-slice-0") is None


def test_the_number_of_a_jobset_that_vanished_unseen_is_not_used_again() -> None:
    started = decide(actor(maxRestarts=1))
    assert started.slices == [StartSlice(0, 1)]
    # A process that dies before it creates the JobSet loses no start.
    assert go_on(actor(maxRestarts=1), started).slices == [StartSlice(0, 1)]
    seen = go_on(actor(maxRestarts=1), started, jobsets=[jobset(0, 1)], pods=pods(0, 1))
    left = go_on(actor(maxRestarts=1), seen, pods=pods(0, 1))
    assert (left.slices, left.status.members[0].attempt) == ([], 2)
    again = go_on(actor(maxRestarts=1), left)
    assert again.slices == [StartSlice(0, 2)]
    second = go_on(actor(maxRestarts=1), again, jobsets=[jobset(0, 2)], pods=pods(0, 2))
    over = go_on(actor(maxRestarts=1), second)
    assert (over.slices, over.status.members[0].failed) == ([], True)
    assert over.status.restarts == 1


def test_what_lacks_pods_is_found() -> None:
    def lacking(jobsets: list[dict[str, Any]], own: list[dict[str, Any]]) -> list[str]:
        observed = ActorObservation(jobsets=jobsets, pods=own)
        return [each["metadata"]["name"] for each in find_lacking(actor(replicas=2), observed)]

    both = [jobset(0, 1), jobset(1, 1)]
    assert lacking(both, [*pods(0, 1), *pods(1, 1)]) == []
    assert lacking(both, [*pods(0, 1), *pods(1, 1)[:1]]) == ["scorer-1-a1"]
    assert lacking([both[0] | {"spec": {"suspend": True}}, jobset(1, 1, **GONE)], []) == []


def test_a_slice_that_failed_is_followed_by_another_once_nothing_of_it_is_left() -> None:
    found = actor()
    failed = jobset(0, 1, end="Failed")
    ending = decide(found, jobsets=[failed], pods=pods(0, 1))
    assert ending.slices == [EndSlice(failed)]
    assert ending.status.members[0].attempt == 2
    assert not ending.status.members[0].ready
    going = go_on(found, ending, jobsets=[{**failed, "metadata": failed["metadata"] | GONE}])
    assert going.slices == []
    for left in ({"pods": pods(0, 1, **GONE)}, {"strangers": pods(0, 1)}):
        assert go_on(found, going, now=NOW + PAUSE, **left).slices == []
    gone = go_on(found, going, now=NOW + PAUSE)
    assert gone.slices == [StartSlice(0, 2)]
    again = go_on(found, gone, jobsets=[jobset(0, 2)])
    assert (again.slices, again.status.members[0].restarts) == ([], 1)


def test_the_more_slices_end_in_a_row_the_longer_the_next_one_waits() -> None:
    found, decision, now = actor(), decide(actor()), NOW
    for ends, seconds in enumerate((10, 20, 40, 60, 60), start=1):
        left = jobset(0, ends, end="Failed", creationTimestamp=format_time(now))
        ending = go_on(found, decision, now=now, jobsets=[left])
        start = now + timedelta(seconds=seconds)
        assert ending.slices == [EndSlice(left)]
        (member,) = ending.status.members
        assert (member.attempt, member.ends_in_a_row) == (ends + 1, ends)
        assert (member.start_after, ending.wake_at) == (format_time(start), start)
        # It is counted once, however often the same JobSet is looked at.
        waiting = go_on(found, ending, now=start - timedelta(milliseconds=1), jobsets=[left])
        waiting = go_on(found, waiting, now=start - timedelta(milliseconds=1))
        assert (waiting.slices, waiting.status.members, waiting.wake_at) == ([], [member], start)
        decision = go_on(found, waiting, now=start)
        assert decision.slices == [StartSlice(0, ends + 1)]
        assert (decision.status.members[0].start_after, decision.wake_at) == (None, None)
        now = start


def test_a_slice_that_was_there_longer_than_the_longest_pause_is_the_first_in_the_row() -> None:
    found = actor(FrayActorStatus(members=[MemberStatus(index=0, attempt=5, ends_in_a_row=4)]))
    made = {"creationTimestamp": format_time(NOW)}
    lived = timedelta(seconds=POLICY.cap_seconds)
    short = decide(found, now=NOW + lived, jobsets=[jobset(0, 5, end="Failed", **made)])
    assert short.status.members[0].ends_in_a_row == 5
    long = decide(found, now=NOW + lived + PAUSE, jobsets=[jobset(0, 5, end="Failed", **made)])
    assert long.status.members[0].ends_in_a_row == 1
    assert long.wake_at == NOW + lived + PAUSE + PAUSE


def test_only_a_slice_that_ended_while_it_was_wanted_makes_the_next_one_wait() -> None:
    found = actor()
    deleted = decide(found, jobsets=[jobset(0, 1, **GONE)])
    assert (deleted.status.members[0].ends_in_a_row, deleted.wake_at) == (0, None)
    assert go_on(found, deleted).slices == [StartSlice(0, 2)]
    failed = jobset(0, 1, end="Failed")
    ending = decide(found, jobsets=[failed])
    suspended = go_on(actor(suspend=True), ending, jobsets=[failed])
    assert (suspended.status.members[0].ends_in_a_row, suspended.wake_at) == (0, None)
    assert go_on(found, suspended).slices == [StartSlice(0, 2)]
    assert decide(actor(suspend=True), jobsets=[failed]).wake_at is None
    given_up = decide(actor(maxRestarts=0), jobsets=[failed])
    assert (given_up.status.members[0].start_after, given_up.wake_at) == (None, None)


def test_the_status_tells_when_a_slice_starts_again_and_why_it_waits() -> None:
    found = actor(replicas=2)
    error = json.dumps({"type": "ValueError", "message": "no such table"})
    both = [jobset(0, 1), jobset(1, 1, end="Failed")]
    first = decide(found, jobsets=both, reports=[report(1, lastError=error)]).status
    start = format_time(NOW + PAUSE)
    assert [member.message for member in first.members] == [
        None,
        f"its JobSet ended; attempt 2 starts at {start}",
    ]
    (ready,) = [each for each in first.conditions if each.type == "Ready"]
    assert (ready.status, ready.reason) == ("False", "MemberFailed")
    assert ready.message == (
        "0 of 2 members take calls; member 1: ValueError: no such table; its JobSet ended; "
        f"attempt 2 starts at {start}"
    )
    # Also where nothing reported an error, as on a node that was lost.
    silent = decide(found, jobsets=both).status
    assert [each.reason for each in silent.conditions if each.type == "Ready"] == ["MemberFailed"]
    before = FrayActorStatus(members=[MemberStatus(index=0, attempt=2, ends_in_a_row=2)])
    third = decide(actor(before), jobsets=[jobset(0, 2, end="Failed")]).status
    assert third.members[0].message == (
        f"its last 3 JobSets ended; attempt 3 starts at {format_time(NOW + 4 * PAUSE)}"
    )


@pytest.mark.parametrize("metadata", [GONE, {}])
def test_a_jobset_that_somebody_deletes_or_that_completes_is_replaced(metadata: dict[str, str]) -> None:
    left = jobset(0, 3, end="" if metadata else "Completed", **metadata)
    assert decide(actor(), jobsets=[left]).status.members[0].attempt == 4


def test_a_member_that_may_not_start_again_is_given_up() -> None:
    found = actor(maxRestarts=1)
    first = decide(found, jobsets=[jobset(0, 1, end="Failed")])
    assert not first.status.members[0].failed
    failed = jobset(0, 2, end="Failed")
    second = go_on(found, first, jobsets=[failed])
    assert (second.status.members[0].failed, second.slices) == (True, [EndSlice(failed)])
    last = go_on(found, second, now=NOW + timedelta(hours=1))
    assert (last.status.members[0].failed, last.slices) == (True, [])
    assert last.status.members[0].restarts == 1
    assert decide(actor(maxRestarts=-1), jobsets=[failed]).status.members[0].failed is False


def test_suspended_stopped_and_smaller_actors_end_their_slices() -> None:
    both = [jobset(0, 1), jobset(1, 1)]
    assert decide(actor(replicas=1), jobsets=both).slices == [EndSlice(both[1])]
    suspended = actor(replicas=2, suspend=True)
    decision = decide(suspended, jobsets=both)
    assert decision.slices == [EndSlice(each) for each in both]
    resumed = actor(replicas=2)
    assert go_on(resumed, decision).slices == [StartSlice(0, 2), StartSlice(1, 2)]
    stopped = actor(replicas=2, stopped=True)
    ending = decide(stopped, jobsets=both)
    assert ending.slices == [EndSlice(each) for each in both]
    assert ending.status.completion_time is None
    assert go_on(stopped, ending, pods=pods(0, 1, **GONE)).status.completion_time is None
    assert go_on(stopped, ending).status.completion_time is not None


def test_two_pods_of_one_host_are_told() -> None:
    told = decide(actor(), jobsets=[jobset(0, 2)], pods=pods(0, 2), strangers=pods(0, 1)[:1]).status
    (found,) = [each for each in told.conditions if each.type == "MultiplePods"]
    assert "host 0 of member 0 has 2 pods" in found.message


def test_a_group_of_slices_ends_once_all_are_idle() -> None:
    found = actor(idleSeconds=60)
    own = pods(0, 1)
    idle = report(0, podUid=own[0]["metadata"]["uid"], idle="true")
    decision = decide(found, jobsets=[jobset(0, 1)], pods=own, reports=[idle])
    assert decision.slices == [EndSlice(jobset(0, 1))]


def test_what_is_counted_by_the_operator_is_not_counted_in_the_pods() -> None:
    found = actor(maxRestarts=1)
    template = build_actor_slice(found, index=1, attempt=2, settings=PlanSettings())
    (job,) = template["spec"]["replicatedJobs"]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    names = {entry["name"] for entry in container["env"]}
    assert "FRAY_ACTOR_MAX_RESTARTS" not in names
    assert "FRAY_JOB_NAME" not in names
    one = build_actor_set(
        actor(maxRestarts=1, resources={"tpu": {"type": "v6e-4"}}), replicas=1, settings=PlanSettings()
    )
    variables = one["spec"]["template"]["spec"]["containers"][0]["env"]
    assert "FRAY_ACTOR_MAX_RESTARTS" in {entry["name"] for entry in variables}


def test_a_slice_keeps_off_the_nodes_that_are_avoided() -> None:
    avoided = [{"node": "node-1", "until": "2026-01-03T00:00:00Z", "reason": "it is broken"}]
    status = FrayActorStatus.model_validate({"avoidedNodes": avoided})
    manifest = build_actor_slice(actor(status), index=0, attempt=1, settings=PlanSettings())
    (job,) = manifest["spec"]["replicatedJobs"]
    affinity = job["template"]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-1"]} in term[
        "matchExpressions"
    ]

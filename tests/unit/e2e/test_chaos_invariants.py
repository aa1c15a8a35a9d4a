"""What may never be seen is seen: overlaps, duplicates, statuses that go back, leaks; and the story told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from e2e.chaos.invariants import (
    find_duplicates,
    find_leaks,
    find_overlaps,
    find_regressions,
    find_talkative,
)
from e2e.chaos.judgement import judge, tell_story
from e2e.chaos.plan import LANES, Act, JobPlan, Kind
from e2e.chaos.records import (
    Hit,
    JobSetSighting,
    JobSighting,
    Outage,
    PodSighting,
    Records,
    UserAct,
    read_job,
    read_jobset,
    read_pod,
)
from fray.testing import build_end

LABELS = {"fray.dev/job": "job", "fray.dev/attempt": "2"}


def pod(uid: str, attempt: int) -> PodSighting:
    return PodSighting(1.0, uid, f"pod-{uid}", "job", attempt, "cp", phase="Running")


def seen(status: dict[str, Any], *, gone: bool = False) -> JobSighting:
    return read_job(1.0, {"metadata": {"name": "job"}, "status": status}, gone=gone)


def test_pods_of_two_attempts_at_once_are_seen_once() -> None:
    first, second = pod("a", 1), pod("b", 2)
    found = list(find_overlaps([first, second, second]))
    assert len(found) == 1
    assert found[0].startswith("job: pods of attempts 1 and 2 at once: pod-a on cp (Running), pod-b")
    assert list(find_overlaps([first, replace(first, ending=True), second])) != []


def test_attempts_that_follow_each_other_are_no_overlap() -> None:
    first, peer, second = pod("a", 1), pod("c", 1), pod("b", 2)
    for over in ({"phase": "Failed"}, {"phase": "Succeeded"}, {"gone": True}):
        ended = [replace(first, **over), replace(peer, **over)]  # type: ignore[arg-type]
        assert list(find_overlaps([first, peer, *ended, second])) == []
    assert list(find_overlaps([first, replace(second, job="other")])) == []


def test_a_second_jobset_of_an_attempt_is_seen_even_when_the_first_is_gone() -> None:
    first = JobSetSighting(1.0, "a", "job-a1", "job", 1)
    gone, again = replace(first, gone=True), replace(first, uid="b")
    assert list(find_duplicates([first, gone])) == []
    assert list(find_duplicates([first, gone, again])) == [
        "job: attempt 1 had 2 JobSets: job-a1, job-a1",
    ]


FIRST = {"number": 1, "verdict": "Failure", "reason": "NonZeroExit", "startTime": "10"}
SECOND = {"number": 2, "startTime": "20"}
RUNNING = {"phase": "Running", "attempts": [FIRST, SECOND], "retries": {"failuresUsed": 1}}


def regressions(before: dict[str, Any], after: dict[str, Any], *, gone: bool = False) -> list[str]:
    return list(find_regressions([seen(before), seen(after, gone=gone)]))


def test_a_status_that_goes_on_is_none_that_goes_back() -> None:
    evicted = {**SECOND, "verdict": "Preemption"}
    again = {
        "attempts": [FIRST, evicted, {"number": 3}],
        "retries": {"failuresUsed": 1, "preemptionsUsed": 1},
    }
    assert regressions(RUNNING, RUNNING) == []
    assert regressions(RUNNING, again) == []
    assert regressions({}, RUNNING) == []


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"retries": {"failuresUsed": 0}}, "failuresUsed went from 1 to 0"),
        ({"retries": {"failuresUsed": 2}}, "failuresUsed is 2, and its attempts are ['Failure', None]"),
        (
            {"retries": {"failuresUsed": 1, "preemptionsUsed": 1}},
            "preemptionsUsed is 1, and its attempts are",
        ),
        ({"attempts": [FIRST]}, "attempt went from 2 to 1"),
        ({"attempts": [SECOND], "retries": {}}, "it has the attempts [2]"),
        ({"attempts": [{**FIRST, "verdict": "Preemption"}, SECOND]}, "attempt 1 has ended, and changes"),
        ({"attempts": [{**FIRST, "reason": "OutOfMemory"}, SECOND]}, "attempt 1 has ended, and changes"),
        ({"attempts": [FIRST, {**SECOND, "startTime": "21"}]}, "startTime of attempt 2 was 20, is 21"),
    ],
)
def test_a_status_that_goes_back_is_seen(changed: dict[str, Any], wrong: str) -> None:
    found = regressions(RUNNING, {**RUNNING, **changed})
    assert any(line.startswith(f"job: {wrong}") for line in found), found


def test_an_end_is_the_last_that_is_told_of_a_job() -> None:
    ended = RUNNING | build_end("Failed", "NonZeroExit")
    (changes,) = regressions(ended, RUNNING)
    assert changes.startswith("job: its status changes after its end")
    assert regressions(ended, RUNNING | build_end("Stopped", "StopRequested")) != []
    assert regressions(ended, ended) == []
    assert regressions(ended, {}, gone=True) == []


def test_only_the_last_ten_attempts_are_told() -> None:
    numbers = [{"number": number, "verdict": "Suspended"} for number in range(1, 13)]
    assert regressions({"attempts": numbers[:10]}, {"attempts": numbers[2:]}) == []
    assert regressions({"attempts": numbers[:10]}, {"attempts": numbers[3:]}) != []


def manifest(name: str, job: str | None, **more: Any) -> dict[str, Any]:
    labels = {} if job is None else {"fray.dev/job": job}
    return {"metadata": {"name": name, "labels": labels}, "status": {}, **more}


def test_what_is_left_of_jobs_that_are_gone_is_a_leak() -> None:
    left = {"jobsets": [manifest("a-a1", "a")], "pods": [], "secrets": [manifest("payload", None)]}
    assert list(find_leaks(left, finished=[])) == [
        "jobsets a-a1 is left of a",
        "secrets payload is left of nobody",
    ]
    service = manifest("a-a1", None)
    service["metadata"]["ownerReferences"] = [{"name": "a-a1", "controller": True}]
    assert list(find_leaks({"services": [service]}, finished=["a"])) == []
    assert list(find_leaks({"services": [service]}, finished=["b"])) == ["services a-a1 is left of a"]


def test_the_keys_of_the_namespace_are_left_of_no_job() -> None:
    assert list(find_leaks({"secrets": [manifest("fray-auth", None)]}, finished=[])) == []


def test_a_finished_job_keeps_three_jobsets_and_no_pod_that_runs() -> None:
    jobsets = [manifest(f"a-a{number}", "a") for number in range(1, 5)]
    assert list(find_leaks({"jobsets": jobsets[:3]}, finished=["a"])) == []
    assert list(find_leaks({"jobsets": jobsets}, finished=["a"])) == ["a keeps 4 JobSets"]
    running = manifest("p", "a", status={"phase": "Running"})
    ended = manifest("q", "a", status={"phase": "Failed"})
    assert list(find_leaks({"pods": [running, ended]}, finished=["a"])) == ["pod p of a is Running"]


def test_events_are_bounded_by_the_attempts() -> None:
    assert list(find_talkative({"a": 12}, {"a": 1})) == []
    assert list(find_talkative({"a": 13}, {"a": 1})) == ["a: 13 events about 1 attempts"]


def test_manifests_become_sightings() -> None:
    container = {"startedAt": "2026-01-02T03:04:05Z", "finishedAt": "2026-01-02T03:04:09Z", "exitCode": 3}
    found = read_pod(
        5.0,
        {
            "metadata": {
                "name": "p",
                "uid": "u",
                "labels": LABELS,
                "deletionTimestamp": "2026-01-02T03:04:05Z",
            },
            "spec": {"nodeName": "cp"},
            "status": {
                "phase": "Failed",
                "containerStatuses": [{"name": "main", "state": {"terminated": container}}],
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
                ],
            },
        },
        gone=False,
    )
    assert found is not None
    assert (found.job, found.attempt, found.node, found.ending, found.exit_code) == ("job", 2, "cp", True, 3)
    assert (found.started, found.finished) == (1767323045.0, 1767323049.0)
    assert found.reason == "EvictionByEvictionAPI"
    assert not found.lives
    bare: dict[str, Any] = {"metadata": {"name": "p", "uid": "u", "labels": LABELS}}
    waiting = read_pod(5.0, bare, gone=False)
    assert waiting is not None
    assert waiting.lives
    lost_reason = "ContainerStatusUnknown"
    for said, made, kept in (
        (lost_reason, {"containerID": "containerd://7"}, lost_reason),
        (lost_reason, {}, None),
        ("Error", {"containerID": "containerd://7"}, None),
    ):
        ended = [{"name": "main", "state": {"terminated": {"exitCode": 137, "reason": said}}, **made}]
        lost = read_pod(5.0, bare | {"status": {"containerStatuses": ended}}, gone=False)
        assert lost is not None
        assert lost.reason == kept
    assert read_pod(5.0, {"metadata": {"name": "p", "uid": "u"}}, gone=False) is None
    assert read_jobset(5.0, {"metadata": {"name": "p", "uid": "u"}}, gone=False) is None
    jobset = read_jobset(5.0, bare, gone=True)
    assert jobset == JobSetSighting(5.0, "u", "p", "job", 2, gone=True)
    status = {
        "phase": "Failed",
        "conditions": [{"type": "Finished", "status": "True"}],
        "attempts": [{"number": 1, "verdict": "Failure"}, {"number": 2}],
        "retries": {"failuresUsed": 1, "preemptionsUsed": 0},
    }
    job = read_job(5.0, {"metadata": {"name": "job"}, "status": status}, gone=False)
    assert (job.phase, job.finished, job.attempt) == ("Failed", True, 2)
    assert dict(job.verdicts) == {1: "Failure"}
    assert read_job(5.0, {"metadata": {"name": "job"}}, gone=False).attempt == 0


PLAN = JobPlan("job", Kind.SUCCEEDS, LANES[0], 10)
WELL = {"verdict": "Success", "reason": "Completed", "message": "well done"}
DONE = build_end("Succeeded", "Completed", attempt=WELL) | {"reason": "Completed"}


def test_a_clean_campaign_has_nothing_to_tell() -> None:
    records = Records(jobs=[seen(DONE)])
    assert judge([PLAN], records, {"job": 3}) == []


def test_every_finding_comes_with_the_story_of_its_job() -> None:
    records = Records(
        hits=[Hit(2.0, "job", 1, "a", "cp", "evicted")],
        acts=[UserAct(3.0, "job", 1, Act.STOP)],
        outages=[Outage("cp", 1.5, 2.5, "kubelet frozen")],
        pods=[pod("a", 1), pod("b", 2)],
        jobsets=[JobSetSighting(1.0, "a", "job-a1", "job", 1)],
        jobs=[seen({**DONE, "phase": "Failed"})],
    )
    overlap, talkative, end = judge([PLAN], records, {"job": 99})
    assert overlap.startswith("job: pods of attempts 1 and 2")
    assert talkative.startswith("job: 99 events")
    assert end.startswith("job: Failed after Success")
    for finding in (overlap, talkative, end):
        assert finding.endswith(tell_story(PLAN, records))
    story = tell_story(PLAN, records).splitlines()
    assert story[1].strip() == "00:00:01.000 JobSet job-a1 seen"
    assert [line.split(maxsplit=1)[1] for line in story if line.split()[1] == "cp:"] == [
        "cp: kubelet frozen",
        "cp: back",
    ]
    assert any("pod of attempt 1 evicted" in line for line in story)
    assert any("user: stop" in line for line in story)
    assert story[-1].strip() == "attempt 1: Completed: well done"


def test_a_job_that_was_never_seen_is_told() -> None:
    (finding,) = judge([PLAN], Records(), {})
    assert finding.startswith("job: its FrayJob was never seen")

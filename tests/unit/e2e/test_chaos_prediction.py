"""The independent model of how jobs end: what was done decides, and only what came late leaves a choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from e2e.chaos.judgement import judge_end
from e2e.chaos.plan import LANES, Act, JobPlan, Kind
from e2e.chaos.prediction import predict
from e2e.chaos.records import (
    POD_DELETED,
    Hit,
    JobSighting,
    LeaseSighting,
    Outage,
    PodSighting,
    Records,
    UserAct,
    read_job,
)
from fray.testing import build_end
from fray.vocabulary import Role

WORK = 10
FAILS = JobPlan("fails", Kind.FAILS, LANES[0], WORK, failing=1_000_000)
SUCCEEDS = JobPlan("succeeds", Kind.SUCCEEDS, LANES[0], WORK)
RECOVERS = JobPlan("recovers", Kind.RECOVERS, LANES[0], WORK, failing=2, failures=2)
EXHAUSTS = JobPlan("exhausts", Kind.EXHAUSTS, LANES[0], WORK, failing=1_000_000, failures=1)
STOPPED = JobPlan("stopped", Kind.STOPPED, LANES[0], None)
SUSPENDED = JobPlan("suspended", Kind.SUSPENDED, LANES[0], WORK)
NODE = "tpu-a-0"


def pod(job: JobPlan, attempt: int, started: float | None, **more: Any) -> PodSighting:
    return PodSighting(0.0, f"{attempt}", "pod", job.name, attempt, NODE, started=started, **more)


def hit(job: JobPlan, attempt: int, at: float) -> Hit:
    return Hit(at, job.name, attempt, f"{attempt}", NODE, "evicted")


def ends(job: JobPlan, **records: Any) -> set[str]:
    return {str(end) for end in predict(job, Records(**records))}


@pytest.mark.parametrize(
    ("job", "end"),
    [
        (SUCCEEDS, "Succeeded after Success"),
        (FAILS, "Failed after Failure"),
        (RECOVERS, "Succeeded after Failure, Failure, Success"),
        (EXHAUSTS, "Failed after Failure, Failure"),
    ],
    ids=lambda value: value.name if isinstance(value, JobPlan) else "",
)
def test_a_job_that_nobody_harms_has_one_end(job: JobPlan, end: str) -> None:
    assert ends(job) == {end}


def test_a_job_that_never_ends_by_itself_has_no_end() -> None:
    assert ends(STOPPED) == set()


def test_harm_long_before_an_attempts_own_end_is_charged_to_preemptions_and_nothing_else() -> None:
    for job, own in (
        (SUCCEEDS, "Succeeded after Preemption, Success"),
        (FAILS, "Failed after Preemption, Failure"),
    ):
        assert ends(job, pods=[pod(job, 1, 100.0)], hits=[hit(job, 1, 104.0)]) == {own}


def test_harm_before_an_attempt_has_begun_is_charged_too() -> None:
    found = ends(SUCCEEDS, pods=[pod(SUCCEEDS, 1, None)], hits=[hit(SUCCEEDS, 1, 104.0)])
    assert found == {"Succeeded after Preemption, Success"}


def test_lost_workers_are_charged_to_nobody() -> None:
    host = pod(SUCCEEDS, 1, 100.0)
    worker = replace(host, uid="w", role=Role.WORKER, exit_code=137, reason="Evicted")
    struck = replace(hit(SUCCEEDS, 1, 104.0), uid="w")
    outages = [Outage("gpu-0", 100.0, 140.0, "kubelet killed")]
    pods = [host, replace(worker, node="gpu-0")]
    assert ends(SUCCEEDS, pods=pods, hits=[struck], outages=outages) == {"Succeeded after Success"}


def test_an_attempt_that_is_hit_twice_is_charged_once() -> None:
    pods = [pod(SUCCEEDS, 1, 100.0), pod(SUCCEEDS, 2, 110.0)]
    hits = [hit(SUCCEEDS, 1, 101.0), hit(SUCCEEDS, 1, 102.0), hit(SUCCEEDS, 2, 112.0)]
    assert ends(SUCCEEDS, pods=pods, hits=hits) == {"Succeeded after Preemption, Preemption, Success"}


def test_which_attempts_fail_by_themselves_counts_from_the_first_not_from_the_hit() -> None:
    found = ends(RECOVERS, pods=[pod(RECOVERS, 1, 100.0)], hits=[hit(RECOVERS, 1, 101.0)])
    assert found == {"Succeeded after Preemption, Failure, Success"}


@pytest.mark.parametrize("at", [107.5, 110.0, 112.0])
def test_harm_at_about_the_time_of_an_attempts_own_end_may_come_too_late(at: float) -> None:
    found = ends(SUCCEEDS, pods=[pod(SUCCEEDS, 1, 100.0)], hits=[hit(SUCCEEDS, 1, at)])
    assert found == {"Succeeded after Success", "Succeeded after Preemption, Success"}


def test_a_pod_that_was_seen_to_reach_its_own_end_may_not_have_been_harmed() -> None:
    pods = [pod(FAILS, 1, 100.0, finished=110.0, exit_code=3)]
    assert ends(FAILS, pods=pods, hits=[hit(FAILS, 1, 104.0)]) == {
        "Failed after Failure",
        "Failed after Preemption, Failure",
    }


def test_a_pod_that_takes_long_to_go_may_go_after_a_peers_own_end() -> None:
    peer = replace(pod(FAILS, 1, 100.0, finished=110.0, exit_code=3), uid="peer")
    deleted = replace(hit(FAILS, 1, 98.0), how=POD_DELETED)
    charged, both = (
        {"Failed after Preemption, Failure"},
        {"Failed after Failure", "Failed after Preemption, Failure"},
    )
    for ended, found in ((103.0, charged), (109.0, both)):
        ran = pod(FAILS, 1, 102.0, finished=ended, exit_code=143)
        never_ran = replace(pod(FAILS, 1, None), at=ended, gone=True)
        for harmed in (ran, never_ran):
            assert ends(FAILS, pods=[peer, harmed], hits=[deleted]) == found
            # An eviction leaves its mark at once.
            assert ends(FAILS, pods=[peer, harmed], hits=[hit(FAILS, 1, 98.0)]) == charged


def test_a_pod_that_takes_long_to_go_and_has_no_peer_is_charged_to_preemptions() -> None:
    pods = [pod(FAILS, 1, 102.0, finished=111.0, exit_code=143)]
    deleted = replace(hit(FAILS, 1, 98.0), how=POD_DELETED)
    assert ends(FAILS, pods=pods, hits=[deleted]) == {"Failed after Preemption, Failure"}


def test_the_first_host_of_a_gang_decides_when_its_own_end_is() -> None:
    early = replace(pod(FAILS, 1, 90.0), uid="early")
    found = ends(FAILS, pods=[pod(FAILS, 1, 100.0), early], hits=[hit(FAILS, 1, 104.0)])
    assert found == {"Failed after Failure", "Failed after Preemption, Failure"}


def test_without_a_kubelet_a_pod_may_come_to_its_own_end_although_it_is_to_go() -> None:
    pods, hits = [pod(SUCCEEDS, 1, 100.0)], [hit(SUCCEEDS, 1, 104.0)]
    away = Outage(NODE, 103.0, 107.0, "kubelet frozen")
    both = {"Succeeded after Success", "Succeeded after Preemption, Success"}
    assert ends(SUCCEEDS, pods=pods, hits=hits, outages=[away]) == both
    elsewhere = replace(away, host="tpu-a-1")
    before = replace(away, begin=90.0, end=100.0)
    for harmless in (elsewhere, before):
        assert ends(SUCCEEDS, pods=pods, hits=hits, outages=[harmless]) == {
            "Succeeded after Preemption, Success"
        }


def test_a_short_outage_alone_ends_nothing_and_a_long_one_may() -> None:
    pods = [pod(SUCCEEDS, 1, 100.0)]
    short, long = Outage(NODE, 101.0, 113.0, "node deleted"), Outage(NODE, 101.0, 161.0, "node deleted")
    assert ends(SUCCEEDS, pods=pods, outages=[short]) == {"Succeeded after Success"}
    both = {"Succeeded after Success", "Succeeded after Preemption, Success"}
    assert ends(SUCCEEDS, pods=pods, outages=[long]) == both
    # A kubelet that starts again may refuse a pod that it had taken: it says so.
    refused = [pod(SUCCEEDS, 1, 100.0, reason="UnexpectedAdmissionError")]
    assert ends(SUCCEEDS, pods=refused, outages=[short]) == both
    assert ends(SUCCEEDS, pods=refused) == {"Succeeded after Success"}


def test_a_node_that_is_made_anew_just_after_a_failure_may_have_been_its_cause() -> None:
    pods = [pod(FAILS, 1, 90.0, exit_code=3, finished=100.0), pod(FAILS, 2, 120.0)]
    both = {"Failed after Failure", "Failed after Preemption, Failure"}
    assert ends(FAILS, pods=pods, outages=[Outage(NODE, 104.0, 112.0, "node deleted")]) == both
    for outage in (
        Outage(NODE, 104.0, 112.0, "kubelet killed"),
        Outage(NODE, 80.0, 85.0, "node deleted"),
        Outage(NODE, 115.0, 119.0, "node deleted"),
    ):
        assert ends(FAILS, pods=pods, outages=[outage]) == {"Failed after Failure"}


def test_what_a_kubelet_that_was_killed_could_not_start_may_be_charged_to_preemptions() -> None:
    pods = [pod(SUCCEEDS, 1, None, exit_code=128, finished=105.0), pod(SUCCEEDS, 2, 120.0)]
    outages = [Outage(NODE, 101.0, 108.0, "killed")]
    either = {"Succeeded after Success", "Succeeded after Preemption, Success"}
    assert ends(SUCCEEDS, pods=pods, outages=outages) == either
    assert ends(SUCCEEDS, pods=pods) == {"Succeeded after Success"}


def test_a_pod_that_a_returning_kubelet_knows_nothing_of_may_have_ended_the_attempt() -> None:
    """Its node went before it had run, and its peers' own failure came before anybody had missed it."""
    late = [pod(FAILS, 1, None, exit_code=137, reason="ContainerStatusUnknown"), pod(FAILS, 2, 120.0)]
    away = Outage(NODE, 99.0, 117.0, "node deleted")
    assert ends(FAILS, pods=late, outages=[away]) == {
        "Failed after Failure",
        "Failed after Preemption, Failure",
    }
    assert ends(FAILS, pods=late) == {"Failed after Failure"}


def test_a_stopped_job_ends_as_stopped_whatever_else_was_done() -> None:
    stop = UserAct(105.0, STOPPED.name, 1, Act.STOP)
    assert ends(STOPPED, acts=[stop]) == {"Stopped after Stopped"}
    found = predict(
        STOPPED, Records(acts=[stop], pods=[pod(STOPPED, 1, 100.0)], hits=[hit(STOPPED, 1, 101.0)])
    )
    assert {end.phase for end in found} == {"Stopped"}
    assert {end.verdicts for end in found} == {
        ("Preemption",),
        ("Preemption", "Stopped"),
        ("Stopped",),
    }


def test_a_suspension_may_come_too_late_and_is_charged_to_no_budget() -> None:
    acts = [UserAct(101.0, SUSPENDED.name, 1, Act.SUSPEND), UserAct(103.0, SUSPENDED.name, 1, Act.RESUME)]
    found = predict(SUSPENDED, Records(acts=acts, pods=[pod(SUSPENDED, 1, 100.0)]))
    assert ("Suspended", "Success") in {end.verdicts for end in found}
    assert ("Success",) in {end.verdicts for end in found}
    assert all(end.verdicts.count("Preemption") == end.verdicts.count("Failure") == 0 for end in found)


def status(phase: str, *verdicts: str, **retries: int) -> dict[str, Any]:
    reasons = {
        "Success": "Completed",
        "Failure": "NonZeroExit",
        "Preemption": "Disrupted",
        "Stopped": "StopRequested",
    }
    attempts = [
        {"number": number, "verdict": verdict, "reason": reasons[verdict]}
        | ({"exitCode": 3} if verdict == "Failure" else {})
        for number, verdict in enumerate(verdicts, 1)
    ]
    counts = {"failuresUsed": 0, "preemptionsUsed": 0, **retries}
    reason = reasons[verdicts[-1]]
    return build_end(phase, reason) | {"reason": reason, "attempts": attempts, "retries": counts}


def mismatch(job: JobPlan, found: dict[str, Any], *, gone: bool = False, **records: Any) -> str | None:
    return judge_end(job, Records(jobs=[sighting(job.name, found, gone=gone)], **records))


def sighting(name: str, found: dict[str, Any], *, gone: bool = False) -> JobSighting:
    return read_job(1.0, {"metadata": {"name": name}, "status": found}, gone=gone)


def test_a_job_as_predicted_is_no_mismatch() -> None:
    assert mismatch(SUCCEEDS, status("Succeeded", "Success")) is None
    assert mismatch(EXHAUSTS, status("Failed", "Failure", "Failure", failuresUsed=2)) is None


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (status("Failed", "Failure", failuresUsed=1), "predicted: Succeeded after Success"),
        (
            status("Succeeded", "Preemption", "Success", preemptionsUsed=1),
            "predicted: Succeeded after Success",
        ),
        (status("Succeeded", "Success", preemptionsUsed=1), "charged 0 failures and 1 preemptions"),
        (status("Succeeded", "Success", failuresUsed=1), "charged 1 failures"),
        ({"phase": "Running", "attempts": [{"number": 1}]}, "Running after none"),
        ({}, "no phase after no attempt"),
    ],
)
def test_every_difference_is_told(found: dict[str, Any], told: str) -> None:
    assert told in str(mismatch(SUCCEEDS, found))


def test_the_reason_and_the_exit_code_count_too() -> None:
    found = status("Failed", "Failure", failuresUsed=1)
    found["attempts"][0]["exitCode"] = 4
    assert "attempt 1 ended as Failure for NonZeroExit with exit code 4" in str(mismatch(FAILS, found))
    taken = status("Succeeded", "Preemption", "Success", preemptionsUsed=1)
    taken["attempts"][0]["reason"] = "NonZeroExit"
    pods, hits = [pod(SUCCEEDS, 1, 100.0)], [hit(SUCCEEDS, 1, 101.0)]
    assert "attempt 1 ended as Preemption for NonZeroExit" in str(
        mismatch(SUCCEEDS, taken, pods=pods, hits=hits)
    )


@pytest.mark.parametrize(
    ("leases", "gone", "known"),
    [
        ([(100.0, "a"), (115.0, "b")], True, True),
        ([(100.0, "a"), (112.0, "a"), (115.0, "b")], True, False),  # the first one led when it was shown
        ([(100.0, "a"), (115.0, "b")], False, False),  # the pod was still there for the second one
        ([(100.0, "a"), (115.0, "a")], True, False),
    ],
    ids=["nobody led", "somebody led", "it stayed", "one leader"],
)
def test_an_exit_code_may_be_unknown_only_if_it_was_shown_while_nobody_led(
    leases: list[tuple[float, str]], *, gone: bool, known: bool
) -> None:
    found = status("Failed", "Failure", failuresUsed=1)
    del found["attempts"][0]["exitCode"]
    shown = replace(pod(FAILS, 1, 100.0), at=110.0, phase="Failed", exit_code=3)
    pods = [shown, replace(shown, at=111.0, gone=True)] if gone else [shown]
    problem = mismatch(FAILS, found, pods=pods, leases=[LeaseSighting(*each) for each in leases])
    assert (problem is None) is known, problem


def test_the_order_of_the_attempts_counts_too() -> None:
    pods, hits = [pod(RECOVERS, 1, 100.0)], [hit(RECOVERS, 1, 101.0)]
    right = status("Succeeded", "Preemption", "Failure", "Success", failuresUsed=1, preemptionsUsed=1)
    wrong = status("Succeeded", "Failure", "Preemption", "Success", failuresUsed=1, preemptionsUsed=1)
    assert mismatch(RECOVERS, right, pods=pods, hits=hits) is None
    assert "predicted" in str(mismatch(RECOVERS, wrong, pods=pods, hits=hits))


def test_only_the_last_ten_attempts_are_told_and_compared() -> None:
    pods = [pod(SUCCEEDS, number, 100.0) for number in range(1, 12)]
    hits = [hit(SUCCEEDS, number, 101.0) for number in range(1, 12)]
    whole = status("Succeeded", *["Preemption"] * 11, "Success", preemptionsUsed=11)
    whole["attempts"] = whole["attempts"][-10:]
    assert mismatch(SUCCEEDS, whole, pods=pods, hits=hits) is None


def test_jobs_are_there_unless_they_were_deleted_or_have_expired() -> None:
    done = status("Succeeded", "Success")
    assert mismatch(SUCCEEDS, done, gone=True) == "its FrayJob is gone"
    expires = replace(SUCCEEDS, kind=Kind.EXPIRES, ttl=0)
    assert mismatch(expires, done) == "its FrayJob is still there"
    assert mismatch(expires, done, gone=True) is None
    assert "predicted" in str(mismatch(expires, status("Failed", "Failure", failuresUsed=1), gone=True))
    assert mismatch(replace(STOPPED, kind=Kind.DELETED), {}, gone=True) is None


def test_a_pod_is_known_by_its_last_sighting() -> None:
    before, after = pod(SUCCEEDS, 1, None), pod(SUCCEEDS, 1, 100.0)
    assert Records(pods=[before, after]).last_pods(SUCCEEDS.name) == [after]
    seen = [sighting("job", {}), sighting("job", {})]
    assert Records(jobs=seen).last_job("job") is seen[1]
    assert Records(jobs=seen).last_job("other") is None

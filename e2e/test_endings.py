"""How jobs end: first causes with rank and log, retries, stops, and time limits, all by real pods."""

from __future__ import annotations

from e2e.job_namespace import JobNamespace, build_job, build_shell, until_told
from fray.vocabulary import LABEL_JOB


def test_a_failed_rank_is_named_with_its_log_and_the_gang_is_tried_again(jobs: JobNamespace) -> None:
    script = """
        if test "$FRAY_ATTEMPT" = 2; then echo fine; exit 0; fi
        if test "$FRAY_HOST" = 1; then echo "out of luck" >&2; exit 3; fi
        trap 'exit 143' TERM; while true; do sleep 0.1; done
    """
    status = jobs.run(build_shell("retried", script, replicas=2, retries={"failures": 1}))
    assert status["phase"] == "Succeeded", status
    first, second = status["attempts"]
    assert (first["verdict"], first["reason"], first["rank"], first["exitCode"]) == (
        *("Failure", "NonZeroExit"),
        *(1, 3),
    )
    assert "rank 1" in first["message"]
    assert first["logTail"] == ["out of luck"]
    assert second["verdict"] == "Success"
    assert jobs.logs("retried", attempt=2) == ["fine\n", "fine\n"]
    assert status["retries"] == {"failuresUsed": 1, "preemptionsUsed": 0}


def test_a_command_that_does_not_exist_fails_and_says_which(jobs: JobNamespace) -> None:
    status = jobs.run(build_job("typo", ["no-such-program"]))
    assert (status["phase"], status["reason"]) == ("Failed", "StartFailed"), status
    assert "no-such-program" in status["attempts"][0]["message"]


def test_a_stopped_job_ends_its_pods_and_keeps_its_status(jobs: JobNamespace) -> None:
    jobs.submit(build_shell("endless", until_told(), replicas=2))
    jobs.await_job("endless", "condition=Running")
    jobs.kubectl("patch", "fj/endless", "--type=merge", '--patch={"spec": {"stopped": true}}')
    status = jobs.await_end("endless")
    assert (status["phase"], status["reason"]) == ("Stopped", "StopRequested"), status
    jobs.kubectl.wait("pods", "delete", seconds=180, selector=f"{LABEL_JOB}=endless")


def test_a_suspended_job_gives_its_hosts_back_and_resumes_in_a_new_attempt(jobs: JobNamespace) -> None:
    jobs.submit(build_shell("paused", until_told()))
    jobs.await_job("paused", "condition=Running")
    jobs.kubectl("patch", "fj/paused", "--type=merge", '--patch={"spec": {"suspend": true}}')
    jobs.await_job("paused", "jsonpath={.status.phase}=Suspended")
    jobs.kubectl.wait("pods", "delete", seconds=180, selector=f"{LABEL_JOB}=paused")
    jobs.kubectl("patch", "fj/paused", "--type=merge", '--patch={"spec": {"suspend": false}}')
    jobs.await_job("paused", "condition=Running")
    jobs.tell("paused", attempt=2)
    status = jobs.await_end("paused")
    assert [attempt["verdict"] for attempt in status["attempts"]] == ["Suspended", "Success"]
    assert status["retries"] == {"failuresUsed": 0, "preemptionsUsed": 0}


def test_an_attempt_that_runs_too_long_is_ended(jobs: JobNamespace) -> None:
    status = jobs.run(build_shell("slow", until_told(), timeouts={"activeSeconds": 3}))
    assert (status["phase"], status["reason"]) == ("Failed", "ActiveTimeout"), status

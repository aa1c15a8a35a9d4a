"""The time limits of attempts and jobs, scenario by scenario."""

from __future__ import annotations

import pytest

from fray.plan.lifecycle import StartAttempt
from fray.plan.observation import Waiting
from fray.vocabulary import Reason
from tests.unit.plan.gang_simulator import Behaviour
from tests.unit.plan.scenarios import FOREVER, NEVER_STARTS, crash, finished, simulation, starts, verdicts


def test_an_attempt_whose_hosts_do_not_all_start_in_time_ends() -> None:
    sim = simulation({3: NEVER_STARTS, 0: FOREVER}, timeouts={"pendingSeconds": 30})
    assert finished(sim.run()) == (
        "Failed",
        "PendingTimeout",
        "not all hosts ran within spec.timeouts.pendingSeconds (30) in attempt 1; "
        "spec.retries.failures allows no retry",
    )
    assert sim.story == [(0, "start 1"), (30, "end 1 PendingTimeout")]
    assert sim.status.attempts[0].rank is None


def test_a_pending_limit_is_charged_and_retried_like_a_failure() -> None:
    sim = simulation(NEVER_STARTS, Behaviour(), timeouts={"pendingSeconds": 30}, retries={"failures": 1})
    assert sim.run().status.phase == "Succeeded"
    assert verdicts(sim) == [("Failure", "PendingTimeout"), ("Success", "Completed")]
    assert sim.story == [(0, "start 1"), (30, "end 1 PendingTimeout"), (40, "start 2")]


def test_a_pending_limit_also_holds_where_the_hosts_could_never_be_created() -> None:
    sim = simulation(timeouts={"pendingSeconds": 30})
    sim.refusal = Waiting(Reason.QUOTA_EXCEEDED, "the quota is used up")
    sim.look()
    sim.advance_to(29)
    assert sim.look().action == StartAttempt(1)
    sim.advance_to(30)
    assert finished(sim.look())[1] == "PendingTimeout"
    assert sim.story == []


def test_hosts_that_nobody_was_there_to_make_are_no_failure_and_have_all_their_time_then() -> None:
    sim = simulation(NEVER_STARTS, timeouts={"pendingSeconds": 30})
    sim.look(dies="before acting")
    sim.advance_to(100)
    assert sim.look().action == StartAttempt(1)
    sim.run()
    assert sim.story == [(100, "start 1"), (130, "end 1 PendingTimeout")]


def test_once_all_hosts_ran_the_pending_limit_is_over() -> None:
    sim = simulation(Behaviour(starts_after=29, runs_for=100), timeouts={"pendingSeconds": 30})
    assert sim.run().status.phase == "Succeeded"


def test_an_attempt_that_runs_too_long_ends() -> None:
    sim = simulation({2: Behaviour(starts_after=20, runs_for=None)}, timeouts={"activeSeconds": 60})
    phase, reason, message = finished(sim.run())
    assert (phase, reason) == ("Failed", "ActiveTimeout")
    assert message.startswith("the hosts ran longer than spec.timeouts.activeSeconds (60) in attempt 1; ")
    assert sim.story[1] == (80, "end 1 ActiveTimeout"), "a minute after the last host had started"


def test_each_attempt_has_the_whole_active_limit() -> None:
    sim = simulation(FOREVER, Behaviour(runs_for=59), timeouts={"activeSeconds": 60}, retries={"failures": 1})
    assert sim.run().status.phase == "Succeeded"


@pytest.mark.parametrize(
    ("crashes_at", "reason", "rank"),
    [(59.9, "NonZeroExit", 1), (60, "ActiveTimeout", None), (60.1, "ActiveTimeout", None)],
)
@pytest.mark.parametrize("looks_at", [61.2, 120])
def test_what_happened_first_is_the_cause_however_late_anybody_looks(
    crashes_at: float, reason: str, rank: int | None, looks_at: float
) -> None:
    sim = simulation({1: crash(after=crashes_at)}, timeouts={"activeSeconds": 60})
    sim.look()
    sim.advance_to(2)
    sim.look()
    sim.advance_to(looks_at)
    sim.look()
    (attempt,) = sim.status.attempts
    assert (attempt.reason, attempt.rank) == (reason, rank)


def test_the_whole_job_has_a_limit_that_no_retry_extends() -> None:
    sim = simulation(FOREVER, timeouts={"totalSeconds": 100, "activeSeconds": 40}, retries={"failures": 9})
    assert finished(sim.run()) == (
        "Failed",
        "TotalTimeout",
        "the job took longer than spec.timeouts.totalSeconds (100)",
    )
    # 1 + 40 + 2 s of attempt 1, pause 10 s; attempt 2 from 53 to 96; in its pause the job's time is up.
    assert starts(sim) == [(0, "start 1"), (53, "start 2")]
    assert sim.seconds == 100


def test_the_limit_of_the_whole_job_ends_a_running_attempt_without_retry() -> None:
    sim = simulation(FOREVER, timeouts={"totalSeconds": 30}, retries={"failures": 9})
    assert finished(sim.run()) == (
        "Failed",
        "TotalTimeout",
        "the job took longer than spec.timeouts.totalSeconds (30)",
    )
    assert sim.story == [(0, "start 1"), (30, "end 1 TotalTimeout")]
    assert sim.seconds == 32


def test_the_limit_of_the_whole_job_goes_on_while_it_is_suspended() -> None:
    sim = simulation(FOREVER, timeouts={"totalSeconds": 100})
    sim.run(until=10)
    sim.change(suspend=True)
    assert finished(sim.run())[1] == "TotalTimeout"
    assert sim.seconds == 100


def test_the_limit_of_the_whole_job_starts_with_its_first_attempt() -> None:
    sim = simulation(timeouts={"totalSeconds": 100}, suspend=True)
    assert sim.look().wake_at is None
    sim.advance(1000)
    sim.change(suspend=False)
    assert sim.run().status.phase == "Succeeded"

"""Users stop and suspend jobs at every moment of their life."""

from __future__ import annotations

import pytest

from fray.plan.lifecycle import Decision, EndAttempt
from fray.vocabulary import Phase, Reason
from tests.unit.plan.gang_simulator import Behaviour
from tests.unit.plan.scenarios import FOREVER, crash, finished, simulation, starts, verdicts

# --- stop ----------------------------------------------------------------------------------------------


def test_a_job_stopped_before_its_first_attempt_never_starts() -> None:
    sim = simulation(stopped=True)
    assert finished(sim.look()) == ("Stopped", "StopRequested", "spec.stopped is true")
    assert sim.story == []
    assert sim.status.attempts == []
    assert sim.status.start_time is None


def test_a_job_stopped_between_the_status_and_the_first_host_starts_none() -> None:
    sim = simulation()
    sim.look(dies="before acting")
    sim.change(stopped=True)
    assert finished(sim.look())[0] == "Stopped"
    assert sim.story == []
    assert verdicts(sim) == [("Stopped", "StopRequested")]


@pytest.mark.parametrize("at", [0.5, 5])
def test_a_job_stopped_while_it_waits_or_runs_ends_its_hosts(at: float) -> None:
    sim = simulation(FOREVER)
    sim.run(until=at)
    sim.change(stopped=True)
    decision = sim.look()
    assert decision.action == EndAttempt(1, Reason.STOP_REQUESTED)
    assert decision.status.phase == Phase.STOPPING
    assert finished(sim.run()) == ("Stopped", "StopRequested", "spec.stopped is true")
    assert sim.status.retries is not None
    assert sim.status.retries.failures_used == 0
    assert verdicts(sim) == [("Stopped", "StopRequested")]


def test_hosts_are_told_to_end_until_they_have() -> None:
    sim = simulation(Behaviour(runs_for=None, ends_after_sigterm=30))
    sim.run(until=5)
    sim.change(stopped=True)
    for _ in range(3):
        assert sim.look().action == EndAttempt(1, Reason.STOP_REQUESTED)
        sim.advance(5)
    assert sim.run().status.phase == "Stopped"
    assert sim.seconds == 35


def test_a_job_stopped_in_its_pause_starts_no_further_attempt() -> None:
    sim = simulation({1: crash()}, retries={"failures": 9})
    sim.run(until=9)
    sim.change(stopped=True)
    assert finished(sim.look()) == ("Stopped", "StopRequested", "spec.stopped is true")
    assert sim.story[-1] == (6, "end 1 NonZeroExit")
    assert verdicts(sim) == [("Failure", "NonZeroExit")]


def test_stopping_a_finished_job_changes_nothing() -> None:
    for sim in (simulation(), simulation({1: crash()})):
        before = sim.run().status
        sim.change(stopped=True)
        sim.advance(1000)
        assert sim.look() == Decision(before)


def test_a_gang_that_had_succeeded_when_the_stop_was_seen_has_succeeded() -> None:
    sim = simulation()
    sim.run(until=5)
    sim.advance_to(60)
    sim.change(stopped=True)
    assert sim.look().status.phase == "Succeeded"


def test_a_gang_that_ends_well_because_it_was_told_to_stop_is_stopped() -> None:
    graceful = Behaviour(runs_for=6, exit_code=0, ends_after_sigterm=100)
    sim = simulation(graceful)
    sim.run(until=5)
    sim.change(stopped=True)
    assert sim.run().status.phase == "Stopped"


def test_a_host_that_failed_by_itself_just_before_a_stop_is_the_attempts_cause_and_the_job_is_stopped() -> (
    None
):
    sim = simulation({1: crash(after=5)}, retries={"failures": 3})
    sim.run(until=5)
    sim.advance_to(6.5)
    sim.change(stopped=True)
    assert sim.run().status.phase == "Stopped"
    assert verdicts(sim) == [("Failure", "NonZeroExit")]


def test_stop_comes_before_suspend() -> None:
    sim = simulation(FOREVER)
    sim.run(until=5)
    sim.change(stopped=True, suspend=True)
    assert sim.run().status.phase == "Stopped"
    waiting = simulation(suspend=True, stopped=True)
    assert waiting.look().status.phase == "Stopped"


# --- suspend -------------------------------------------------------------------------------------------


def test_a_job_made_suspended_waits_without_an_attempt() -> None:
    sim = simulation(suspend=True)
    decision = sim.look()
    assert (decision.action, decision.wake_at) == (None, None)
    assert (sim.status.phase, sim.status.reason, sim.status.attempts) == ("Suspended", "Suspended", [])
    sim.change(suspend=False)
    assert sim.run().status.phase == "Succeeded"


def test_suspending_ends_the_attempt_for_free_and_resuming_starts_the_next_at_once() -> None:
    sim = simulation(FOREVER, Behaviour())
    sim.run(until=5)
    sim.change(suspend=True)
    assert sim.look().action == EndAttempt(1, Reason.SUSPENDED)
    sim.run(until=50)
    assert sim.status.phase == "Suspended"
    sim.change(suspend=False)
    assert finished(sim.run())[2] == "all 4 hosts exited with code 0 in attempt 2"
    assert sim.story == [(0, "start 1"), (5, "end 1 Suspended"), (50, "start 2")]
    assert verdicts(sim) == [("Suspended", "Suspended"), ("Success", "Completed")]
    assert sim.status.retries is not None
    assert sim.status.retries.failures_used == 0


def test_a_job_resumed_before_its_hosts_have_ended_starts_the_next_attempt_only_then() -> None:
    sim = simulation(Behaviour(runs_for=None, ends_after_sigterm=20), Behaviour())
    sim.run(until=5)
    sim.change(suspend=True)
    sim.look()
    sim.change(suspend=False)
    assert sim.look().action == EndAttempt(1, Reason.SUSPENDED)
    assert sim.run().status.phase == "Succeeded"
    assert sim.story[-1] == (25, "start 2")


def test_a_job_suspended_in_its_pause_starts_nothing_and_pauses_on_when_resumed() -> None:
    sim = simulation({1: crash()}, Behaviour(), retries={"failures": 1})
    sim.run(until=9)
    sim.change(suspend=True)
    sim.run(until=12)
    assert sim.status.phase == "Suspended"
    sim.change(suspend=False)
    assert sim.look().status.reason == "BackOff"
    sim.run()
    assert starts(sim) == [(0, "start 1"), (18, "start 2")]


def test_a_suspended_job_can_be_stopped() -> None:
    sim = simulation(FOREVER)
    sim.run(until=5)
    sim.change(suspend=True)
    sim.run(until=20)
    sim.change(stopped=True)
    assert finished(sim.look()) == ("Stopped", "StopRequested", "spec.stopped is true")


def test_a_gang_that_had_succeeded_when_the_suspension_was_seen_has_succeeded() -> None:
    sim = simulation()
    sim.run(until=5)
    sim.advance_to(60)
    sim.change(suspend=True)
    assert sim.look().status.phase == "Succeeded"


def test_who_stopped_a_job_is_told_where_it_is_known() -> None:
    sim = simulation(FOREVER)
    sim.run(until=5)
    because = {"fray.dev/stopped-because": "its parent \x1b[31mtrain failed"}
    sim.job = sim.job.model_copy(
        update={"metadata": sim.job.metadata.model_copy(update={"annotations": because})}
    )
    sim.run(until=6)
    assert sim.look().action is None  # the annotation alone stops nothing
    sim.change(stopped=True)
    decision = sim.look()
    told = {condition.type: condition.message for condition in decision.status.conditions}
    assert told["Running"] == "attempt 1 is ending: its parent train failed"
    assert finished(sim.run()) == ("Stopped", "StopRequested", "its parent train failed")

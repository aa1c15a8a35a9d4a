"""A job's attempts, scenario by scenario, in a simulated world (`gang_simulator`)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

from fray.plan.lifecycle import StartAttempt, decide
from fray.plan.observation import (
    NEVER_RAN,
    START_FAILED,
    GangObservation,
    HostObservation,
    HostPhase,
    Waiting,
)
from fray.plan.settings import RetryPolicy
from fray.plan.status import find_condition
from fray.plan.timestamps import format_time
from fray.testing import build_frayjob
from fray.vocabulary import (
    EXIT_PAYLOAD_CHANGED,
    EXIT_PAYLOAD_CODE,
    EXIT_PAYLOAD_MISSING,
    EXIT_PAYLOAD_PYTHON,
    EXIT_PAYLOAD_UNREADABLE,
    ConditionType,
    Reason,
)
from fray.wire.status import AttemptStatus, FrayJobStatus
from tests.unit.plan.frayjobs import with_status
from tests.unit.plan.gang_simulator import POLICY, START, Behaviour
from tests.unit.plan.scenarios import FOREVER, NEVER_STARTS, crash, finished, simulation, starts, verdicts

# --- success -------------------------------------------------------------------------------------------


def test_a_job_succeeds_when_all_its_hosts_do() -> None:
    sim = simulation()
    assert finished(sim.run()) == ("Succeeded", "Completed", "all 4 hosts exited with code 0 in attempt 1")
    assert sim.story == [(0, "start 1")]
    (attempt,) = sim.status.attempts
    assert (attempt.start_time, attempt.running_time, attempt.end_time) == (
        "2026-01-31T12:00:00.000Z",
        "2026-01-31T12:00:01.000Z",
        "2026-01-31T12:00:11.000Z",
    )
    assert (attempt.job_set, attempt.verdict, attempt.reason) == ("train-a1", "Success", "Completed")
    assert (attempt.pod, attempt.rank, attempt.exit_code) == (None, None, None), "nobody is to blame"
    assert sim.status.start_time == "2026-01-31T12:00:00.000Z"
    assert sim.status.completion_time == "2026-01-31T12:00:11.000Z"


def test_the_phases_of_a_job_that_succeeds() -> None:
    sim = simulation({3: Behaviour(starts_after=5, runs_for=20)})
    phases = []
    for moment in (0, 0.5, 2, 6, 12):
        sim.advance_to(moment)
        sim.look()
        phases.append((sim.status.phase, sim.status.reason))
    assert phases == [
        ("Pending", "HostsStarting"),
        ("Pending", "HostsStarting"),
        ("Pending", "HostsStarting"),  # one of four is missing
        ("Running", "AllHostsRunning"),
        ("Running", "AllHostsRunning"),  # three have ended well, the last still runs
    ]
    assert sim.status.replicas is not None
    assert sim.status.replicas.succeeded == 3
    assert sim.run().status.phase == "Succeeded"


def test_a_job_of_one_host_says_so() -> None:
    assert finished(simulation(replicas=1).run())[2] == "the host exited with code 0 in attempt 1"


def test_success_needs_all_hosts_and_is_not_declared_early() -> None:
    sim = simulation({3: FOREVER})
    decision = sim.run(until=1000)
    assert not decision.finished
    assert decision.action is None
    assert sim.status.phase == "Running"


# --- failure and retries -------------------------------------------------------------------------------


def test_one_failing_host_ends_all_and_is_named() -> None:
    sim = simulation({2: crash(after=5, code=3)})
    assert finished(sim.run()) == (
        "Failed",
        "NonZeroExit",
        "rank 2 (slice 0, host 2) exited with code 3 in attempt 1; spec.retries.failures allows no retry",
    )
    assert sim.story == [(0, "start 1"), (6, "end 1 NonZeroExit")]
    (attempt,) = sim.status.attempts
    assert (attempt.pod, attempt.node, attempt.rank, attempt.exit_code) == ("pod-1-2", "node-2", 2, 3)
    assert attempt.end_time == "2026-01-31T12:00:08.000Z", "when the last host had ended"
    assert attempt.message == "rank 2 (slice 0, host 2) exited with code 3"


def test_the_story_stays_that_of_the_first_host_when_its_peers_crash_too() -> None:
    sim = simulation({2: crash(5, code=3), 0: crash(5.1, code=134), 1: crash(5.2, code=134)})
    sim.run(until=6)
    sim.advance(1)
    sim.run()
    assert sim.status.attempts[0].rank == 2
    assert finished(sim.look())[1] == "NonZeroExit"


def test_a_slow_look_still_names_the_host_that_ended_first() -> None:
    sim = simulation({2: crash(5, code=3), 0: crash(5.1, code=134), 1: crash(0.5), 3: crash(5.2)})
    sim.look()
    sim.advance(60)  # nobody looked for a minute
    sim.look()
    assert sim.status.attempts[0].rank == 1


def test_a_failure_is_retried_within_its_budget() -> None:
    sim = simulation({1: crash()}, {0: crash()}, Behaviour(), retries={"failures": 2})
    assert finished(sim.run()) == ("Succeeded", "Completed", "all 4 hosts exited with code 0 in attempt 3")
    assert verdicts(sim) == [("Failure", "NonZeroExit"), ("Failure", "NonZeroExit"), ("Success", "Completed")]
    assert sim.status.retries is not None
    assert sim.status.retries.failures_used == 2
    # Attempt 1 fails at 6 and its hosts are gone at 8; 10 s pause, then 20 s.
    assert starts(sim) == [
        (0, "start 1"),
        (18, "start 2"),
        (46, "start 3"),
    ]


def test_a_budget_runs_out_with_the_last_cause_and_the_count_in_the_message() -> None:
    sim = simulation({1: crash(code=7)}, retries={"failures": 2})
    assert finished(sim.run()) == (
        "Failed",
        "NonZeroExit",
        "rank 1 (slice 0, host 1) exited with code 7 in attempt 3; 2 of 2 retries for failures used",
    )
    assert sim.status.retries is not None
    assert sim.status.retries.failures_used == 3, "charged, the last one too"


def test_the_end_of_the_log_follows_the_sentence() -> None:
    sim = simulation(FOREVER)
    sim.run(until=5)
    host = sim.host(1)
    host.observation = replace(host.observation, log_tail=("Traceback", "ValueError: no", ""))
    host.end(1, at=sim.now)
    message = finished(sim.run())[2]
    assert message.splitlines() == [
        "rank 1 (slice 0, host 1) exited with code 1 in attempt 1; spec.retries.failures allows no retry",
        "Traceback",
        "ValueError: no",
    ]


def test_while_it_pauses_a_job_says_why_and_when_it_goes_on() -> None:
    sim = simulation({1: crash()}, retries={"failures": 1})
    decision = sim.run(until=9)
    assert decision.action is None
    assert sim.status.phase == "Restarting"
    assert sim.status.reason == "BackOff"
    running = find_condition(sim.status, ConditionType.RUNNING)
    assert running is not None
    assert running.message == (
        "attempt 1 ended: rank 1 (slice 0, host 1) exited with code 1; "
        "attempt 2 starts at 2026-01-31T12:00:18.000Z"
    )
    assert decision.wake_at is not None
    assert (decision.wake_at - START).total_seconds() == 18


def test_a_pause_ends_at_the_moment_it_said() -> None:
    sim = simulation({1: crash()}, retries={"failures": 1})
    sim.run(until=17.999)
    assert sim.look().action is None
    sim.advance_to(18)
    assert sim.look().action == StartAttempt(2)


def test_pauses_grow_up_to_their_cap() -> None:
    sim = simulation({1: crash(after=1)}, retries={"failures": 5})
    sim.run()
    moments = [moment for moment, _ in starts(sim)]
    # Hosts start after 1 s, one fails after another, its peers are gone 2 s later.
    assert [later - earlier - 4 for earlier, later in itertools.pairwise(moments)] == [
        10,
        20,
        40,
        40,
        40,
    ]


@pytest.mark.parametrize("off", [timedelta(hours=6), -timedelta(days=20_000)])
def test_a_pause_counts_from_now_where_a_nodes_clock_is_far_off(off: timedelta) -> None:
    begun = AttemptStatus(
        number=1, job_set="train-a1", start_time=format_time(START), running_time=format_time(START)
    )
    job = with_status(build_frayjob(retries={"failures": 1}), FrayJobStatus(attempts=[begun]))
    now = START + timedelta(minutes=5)
    host = HostObservation(0, 0, 0, "pod", HostPhase.FAILED, exit_code=1, ended_at=now + off)
    decision = decide(job, GangObservation((host,)), now=now, policy=POLICY)
    (attempt,) = decision.status.attempts
    assert (attempt.end_time, attempt.verdict) == (format_time(now), "Failure")
    assert decision.wake_at is not None
    assert decision.wake_at > now


def test_a_retry_at_once_when_the_policy_says_so() -> None:
    sim = simulation({1: crash()}, Behaviour(), policy=RetryPolicy(0, 0), retries={"failures": 1})
    sim.run()
    assert starts(sim) == [(0, "start 1"), (8, "start 2")]


def test_a_host_that_cannot_start_fails_the_attempt_with_its_message() -> None:
    sim = simulation({1: NEVER_STARTS, 3: FOREVER})
    sim.run(until=5)
    host = sim.host(1)
    host.observation = replace(host.observation, reason=START_FAILED, message="'trian' is not on PATH")
    host.end(127, at=sim.now)
    phase, reason, message = finished(sim.run())
    assert (phase, reason) == ("Failed", "StartFailed")
    assert message.startswith("rank 1 (slice 0, host 1) could not start: 'trian' is not on PATH in attempt 1")
    assert sim.status.attempts[0].exit_code == 127


def refuse_callable(code: int) -> tuple[str, str, str]:
    """Return how a job ends that may retry, when its first attempt says that its callable can't be run."""
    sim = simulation(FOREVER, Behaviour(), retries={"failures": 5})
    sim.run(until=5)
    host = sim.host(1)
    host.observation = replace(host.observation, reason=NEVER_RAN)
    host.end(code, at=sim.now)
    return finished(sim.run())


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (EXIT_PAYLOAD_CHANGED, "PayloadInvalid"),
        (EXIT_PAYLOAD_UNREADABLE, "PayloadInvalid"),
        (EXIT_PAYLOAD_PYTHON, "ImageMismatch"),
        (EXIT_PAYLOAD_CODE, "ImageMismatch"),
    ],
)
def test_a_callable_that_can_never_run_ends_the_job_at_once(code: int, reason: str) -> None:
    message = f"rank 1 (slice 0, host 1) never ran its program (exit code {code}) in attempt 1"
    assert refuse_callable(code) == ("Failed", reason, f"{message}; each further attempt would end so too")


def test_a_callable_that_is_missing_may_be_there_the_next_time() -> None:
    assert refuse_callable(EXIT_PAYLOAD_MISSING)[0] == "Succeeded"


def test_twelve_attempts_keep_ten_in_status_and_count_all() -> None:
    sim = simulation(*[{1: crash(after=1)}] * 11, Behaviour(), retries={"failures": 20})
    assert finished(sim.run())[2] == "all 4 hosts exited with code 0 in attempt 12"
    assert [attempt.number for attempt in sim.status.attempts] == list(range(3, 13))
    assert sim.status.attempt == 12
    assert sim.status.retries is not None
    assert sim.status.retries.failures_used == 11
    assert sim.status.start_time == "2026-01-31T12:00:00.000Z", (
        "of the first attempt, which is no longer told"
    )
    assert sim.status.attempts[-1].job_set == "train-a12"


# --- jobs that can't start --------------------------------------------------------------------------------


def test_a_job_that_asks_for_the_unsupported_starts_nothing_and_says_why() -> None:
    sim = simulation()
    no = Waiting(Reason.POD_TEMPLATE_INVALID, "spec.podTemplate is wrong")
    decision = decide(sim.job, None, now=sim.now, policy=sim.policy, unsupported=no)
    assert (decision.action, decision.wake_at, decision.finished) == (None, None, False)
    accepted = find_condition(decision.status, ConditionType.ACCEPTED)
    assert accepted is not None
    assert (accepted.status, accepted.reason, accepted.message) == (
        "False",
        "PodTemplateInvalid",
        "spec.podTemplate is wrong",
    )
    assert sim.run().status.phase == "Succeeded", "once it is supported"


def test_an_unsupported_job_can_still_be_stopped() -> None:
    sim = simulation(stopped=True)
    no = Waiting(Reason.POD_TEMPLATE_INVALID, "spec.podTemplate is wrong")
    assert decide(sim.job, None, now=sim.now, policy=sim.policy, unsupported=no).status.phase == "Stopped"


def test_a_job_whose_hosts_could_not_be_created_says_why_and_tries_on() -> None:
    sim = simulation()
    sim.look(dies="before acting")
    refusal = Waiting(Reason.QUOTA_EXCEEDED, "a quota of the namespace is used up")
    decision = decide(sim.job, None, now=sim.now, policy=sim.policy, refusal=refusal)
    assert decision.action == StartAttempt(1)
    assert decision.status.reason == "QuotaExceeded"
    running = find_condition(decision.status, ConditionType.RUNNING)
    assert running is not None
    assert running.message == "a quota of the namespace is used up"


# --- more than one slice -------------------------------------------------------------------------------


def test_a_multislice_counts_all_its_hosts() -> None:
    sim = simulation(replicas=2, resources={"tpu": {"type": "v5p-16"}})
    sim.look()
    assert len(sim.hosts[1]) == 4
    assert [(h.observation.slice_index, h.observation.host, h.rank) for h in sim.hosts[1]] == [
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, 2),
        (1, 1, 3),
    ]
    assert finished(sim.run())[2] == "all 4 hosts exited with code 0 in attempt 1"


# --- the caller dies -----------------------------------------------------------------------------------


def test_a_caller_that_died_before_acting_acts_the_same_when_it_is_back() -> None:
    sim = simulation({1: crash()}, Behaviour(), retries={"failures": 1})
    for moment in (0, 0, 2, 6, 6, 8, 18, 18):
        sim.advance_to(moment)
        first = sim.look(dies="before acting")
        second = sim.look(dies="before acting")
        assert (first.action, first.status) == (second.action, second.status)
        sim.look()
    assert sim.run().status.phase == "Succeeded"
    assert sim.status.retries is not None
    assert sim.status.retries.failures_used == 1


def test_a_caller_that_died_before_writing_charges_nothing_twice() -> None:
    sim = simulation({1: crash()}, {1: crash()}, Behaviour(), retries={"failures": 2})
    for _ in range(200):
        for _ in range(3):
            sim.look(dies="before writing")
        if sim.look().finished:
            break
        sim.advance(0.5)
    assert sim.status.phase == "Succeeded"
    assert sim.status.retries is not None
    assert sim.status.retries.failures_used == 2
    assert sorted(sim.hosts) == [1, 2, 3]


def test_a_caller_that_was_away_for_long_takes_up_where_it_was() -> None:
    sim = simulation({1: crash()}, Behaviour(), retries={"failures": 1})
    sim.run(until=7)  # the attempt is ending
    sim.advance(3600)
    assert sim.look().action == StartAttempt(2), "the pause has long passed"


def test_hosts_deleted_from_outside_end_the_attempt_and_are_charged_as_a_preemption() -> None:
    sim = simulation(FOREVER)
    sim.run(until=5)
    status = sim.status
    assert status.attempts[-1].running_time is not None
    decision = decide(sim.job, None, now=sim.now, policy=POLICY)
    (attempt,) = decision.status.attempts
    assert (attempt.verdict, attempt.reason) == ("Preemption", "HostsGone")
    assert decision.status.retries is not None
    assert decision.status.retries.preemptions_used == 1
    assert decision.action is None

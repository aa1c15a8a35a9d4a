"""The model itself, and that lives find out an operator that is wrong."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from e2e.chaos.oracle import DELETED, End
from fray.plan import lifecycle
from fray_operator import cleanup, observe
from fray_operator.writer import Writer
from tests.faults.life import live
from tests.faults.prediction import predict
from tests.faults.scenario import Act, Kind, Plan

LIVES = 30
"""Of a broken operator: each is found out much earlier."""


def plan(*kinds: Kind, failures: int = 0, preemptions: int = 100) -> Plan:
    retries = {"failures": failures, "preemptions": preemptions}
    acts = tuple(Act(kind, delay=0.0, rank=0, code=3, later=0.0) for kind in (*kinds, Kind.SUCCEED))
    return Plan("train", hosts=1, slices=1, created_at=0.0, spec={"retries": retries}, acts=acts)


def told(ends: Iterable[End]) -> set[str]:
    return {str(end) for end in ends}


@pytest.mark.parametrize(
    ("job", "end"),
    [
        (plan(), "Succeeded after Success"),
        (plan(Kind.CRASH), "Failed after Failure"),
        (plan(Kind.CRASH, failures=1), "Succeeded after Failure, Success"),
        (plan(Kind.EVICT, Kind.CRASH), "Failed after Preemption, Failure"),
        (plan(Kind.EVICT, preemptions=0), "Failed after Preemption"),
        (plan(Kind.SUSPEND, Kind.MISPLACE), "Succeeded after Suspended, Misplacement, Success"),
        (plan(Kind.RUN_FOREVER, failures=5), "Failed after Failure"),
        (plan(Kind.EVICT, Kind.STOP), "Stopped after Preemption, Stopped"),
    ],
)
def test_budgets_and_ends(job: Plan, end: str) -> None:
    assert told(predict(job, interrupted=set())) == {end}


def test_what_races_has_an_end_for_each_winner() -> None:
    ends = predict(plan(Kind.CRASH_AND_STOP), interrupted=set())
    assert told(ends) == {"Failed after Failure", "Stopped after Stopped"}
    ends = predict(plan(Kind.CRASH_AND_STOP, failures=1), interrupted=set())
    assert told(ends) == {"Stopped after Failure", "Stopped after Stopped"}


def test_a_user_who_came_too_late_between_two_attempts_did_nothing() -> None:
    job = plan(Kind.CRASH_THEN_DELETE, failures=1)
    assert predict(job, interrupted={1}) == {End(DELETED)}
    assert told(predict(job, interrupted=set())) == {"Succeeded after Failure, Success"}


def test_an_attempt_that_nobody_saw_for_long_may_be_over_its_limit() -> None:
    job = plan(Kind.DELETE_JOBSET)
    limited = replace(job, spec={**job.spec, "timeouts": {"activeSeconds": 400}})
    seen = "Succeeded after Preemption, Success"
    assert told(predict(limited, interrupted=set())) == {seen}
    assert told(predict(job, interrupted=set(), outlasted={1})) == {seen}
    ends = predict(limited, interrupted=set(), outlasted={1})
    assert told(ends) == {seen, "Failed after Failure"}


def test_a_stop_that_nobody_saw_for_long_may_come_after_the_limit_and_still_ends_the_job() -> None:
    job = plan(Kind.STOP, failures=1)
    limited = replace(job, spec={**job.spec, "timeouts": {"activeSeconds": 400}})
    ends = predict(limited, interrupted=set(), outlasted={1})
    assert told(ends) == {"Stopped after Stopped", "Stopped after Failure"}


def charge_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    charge: Callable[..., Any] = lifecycle.charge
    monkeypatch.setattr(lifecycle, "charge", lambda counts, verdict: charge(charge(counts, verdict), verdict))


def trust_the_cache_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "_is_unseen", lambda _: False)


def tell_events_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    build = Writer._build_event

    def build_another(writer: Writer, *about: Any) -> Any:
        event = build(writer, *about)
        event["metadata"]["name"] += secrets.token_hex(4)
        return event

    monkeypatch.setattr(Writer, "_build_event", build_another)


def leave_what_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "find_obsolete", lambda *_: [])


@pytest.mark.parametrize(
    ("break_it", "first"),
    # What comes late rarely does so after its job's last look: none of the first 90 lives shows it.
    [(charge_twice, 0), (trust_the_cache_of_pods, 0), (tell_events_twice, 0), (leave_what_comes_late, 90)],
)
def test_an_operator_that_is_wrong_is_found_out(
    break_it: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert any(live(seed).wrong for seed in range(first, first + LIVES))

"""The model itself, and that lives find out an operator that is wrong."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fray.plan import lifecycle
from fray_operator import cleanup, observe
from fray_operator.writer import Writer
from tests.faults.life import live
from tests.faults.prediction import DELETED, End, predict
from tests.faults.scenario import Act, Kind, Plan

LIVES = 30
"""Of a broken operator: each is found out much earlier."""


def plan(*kinds: Kind, failures: int = 0, preemptions: int = 100) -> Plan:
    retries = {"failures": failures, "preemptions": preemptions}
    acts = tuple(Act(kind, delay=0.0, rank=0, code=3, later=0.0) for kind in (*kinds, Kind.SUCCEED))
    return Plan("train", hosts=1, slices=1, created_at=0.0, spec={"retries": retries}, acts=acts)


def told(end: End) -> tuple[str, list[str]]:
    return end.phase, [attempt.verdict for attempt in end.attempts]


@pytest.mark.parametrize(
    ("job", "phase", "verdicts"),
    [
        (plan(), "Succeeded", ["Success"]),
        (plan(Kind.CRASH), "Failed", ["Failure"]),
        (plan(Kind.CRASH, failures=1), "Succeeded", ["Failure", "Success"]),
        (plan(Kind.EVICT, Kind.CRASH), "Failed", ["Preemption", "Failure"]),
        (plan(Kind.EVICT, preemptions=0), "Failed", ["Preemption"]),
        (plan(Kind.SUSPEND, Kind.MISPLACE), "Succeeded", ["Suspended", "Misplacement", "Success"]),
        (plan(Kind.RUN_FOREVER, failures=5), "Failed", ["Failure"]),
        (plan(Kind.EVICT, Kind.STOP), "Stopped", ["Preemption", "Stopped"]),
    ],
)
def test_budgets_and_ends(job: Plan, phase: str, verdicts: list[str]) -> None:
    (end,) = predict(job, interrupted=set())
    assert told(end) == (phase, verdicts)


def test_what_races_has_an_end_for_each_winner() -> None:
    ends = predict(plan(Kind.CRASH_AND_STOP), interrupted=set())
    assert [told(end) for end in ends] == [("Failed", ["Failure"]), ("Stopped", ["Stopped"])]
    ends = predict(plan(Kind.CRASH_AND_STOP, failures=1), interrupted=set())
    assert [told(end) for end in ends] == [("Stopped", ["Failure"]), ("Stopped", ["Stopped"])]


def test_a_user_who_came_too_late_between_two_attempts_did_nothing() -> None:
    job = plan(Kind.CRASH_THEN_DELETE, failures=1)
    assert predict(job, interrupted={1}) == (DELETED,)
    (end,) = predict(job, interrupted=set())
    assert told(end) == ("Succeeded", ["Failure", "Success"])


def test_an_attempt_that_nobody_saw_for_long_may_be_over_its_limit() -> None:
    job = plan(Kind.DELETE_JOBSET)
    limited = replace(job, spec={**job.spec, "timeouts": {"activeSeconds": 400}})
    seen = ("Succeeded", ["Preemption", "Success"])
    assert [told(end) for end in predict(limited, interrupted=set())] == [seen]
    assert [told(end) for end in predict(job, interrupted=set(), outlasted={1})] == [seen]
    ends = predict(limited, interrupted=set(), outlasted={1})
    assert [told(end) for end in ends] == [seen, ("Failed", ["Failure"])]


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
    "break_it", [charge_twice, trust_the_cache_of_pods, tell_events_twice, leave_what_comes_late]
)
def test_an_operator_that_is_wrong_is_found_out(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert any(live(seed).wrong for seed in range(LIVES))

"""Two budgets, each charged for its own verdicts, and pauses that grow."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fray.plan.limits import Budget, charge, derive_budget, derive_delay
from fray.plan.settings import RetryPolicy
from fray.vocabulary import VerdictKind
from fray.wire.frayjob import Retries
from fray.wire.status import AttemptStatus, RetryCounts

F, P, SUS, STO, OK = (
    VerdictKind.FAILURE,
    VerdictKind.PREEMPTION,
    VerdictKind.SUSPENDED,
    VerdictKind.STOPPED,
    VerdictKind.SUCCESS,
)


def attempts(*verdicts: VerdictKind | None) -> list[AttemptStatus]:
    return [
        AttemptStatus(number=number, verdict=None if verdict is None else verdict.value)
        for number, verdict in enumerate(verdicts, start=1)
    ]


@pytest.mark.parametrize(
    ("verdict", "failures", "preemptions"),
    [(F, 4, 7), (P, 3, 8), (SUS, 3, 7), (STO, 3, 7), (OK, 3, 7)],
)
def test_only_failures_and_preemptions_are_charged_each_to_its_own(
    verdict: VerdictKind, failures: int, preemptions: int
) -> None:
    before = RetryCounts(failures_used=3, preemptions_used=7)
    assert charge(before, verdict) == RetryCounts(failures_used=failures, preemptions_used=preemptions)
    assert before == RetryCounts(failures_used=3, preemptions_used=7)


def test_each_verdict_is_paid_from_its_own_budget() -> None:
    retries = Retries(failures=1, preemptions=100)
    counts = RetryCounts(failures_used=2, preemptions_used=5)
    assert derive_budget(retries, counts, F) == Budget("failures", allowed=1, used=2)
    assert derive_budget(retries, counts, P) == Budget("preemptions", allowed=100, used=5)
    assert [derive_budget(retries, counts, free) for free in (SUS, STO, OK)] == [None, None, None]


@pytest.mark.parametrize(
    ("allowed", "used", "exhausted", "described"),
    [
        (0, 0, False, "spec.retries.failures allows no retry"),
        (0, 1, True, "spec.retries.failures allows no retry"),
        (1, 1, False, "1 of 1 retries for failures used"),
        (1, 2, True, "1 of 1 retries for failures used"),
        (5, 2, False, "2 of 5 retries for failures used"),
        (5, 6, True, "5 of 5 retries for failures used"),
    ],
)
def test_a_budget_is_exhausted_by_one_more_than_it_allows(
    allowed: int, used: int, exhausted: bool, described: str
) -> None:
    budget = Budget("failures", allowed, used)
    assert (budget.exhausted, budget.describe()) == (exhausted, described)


@pytest.mark.parametrize(
    ("verdicts", "delay"),
    [
        ((), 0),
        ((None,), 0),
        ((F,), 10),
        ((F, F), 20),
        ((F, F, F), 40),
        ((F,) * 6, 320),
        ((F,) * 7, 360),
        ((F,) * 10, 360),
        ((P, P), 20),
        # another kind of end starts anew
        ((F, F, P), 10),
        ((P, P, F), 10),
        ((F, F, SUS, F), 10),
        # who suspends or stops waits for nothing
        ((F, F, SUS), 0),
        ((SUS,), 0),
        ((STO,), 0),
        ((OK,), 0),
    ],
)
def test_pauses(verdicts: tuple[VerdictKind | None, ...], delay: float) -> None:
    assert derive_delay(attempts(*verdicts), RetryPolicy()) == delay


@settings(max_examples=200, derandomize=True)
@given(
    initial=st.floats(0, 1000),
    cap=st.floats(0, 10000),
    retries=st.integers(1, 2_000_000),
)
def test_a_pause_grows_never_beyond_the_cap(initial: float, cap: float, retries: int) -> None:
    policy = RetryPolicy(initial, cap)
    assert 0 <= policy.delay(retries) <= policy.delay(retries + 1) <= cap
    assert policy.delay(1) == min(initial, cap)

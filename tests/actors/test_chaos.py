"""A few kills of an actor under callers; the long form is `python -m tests.actors.chaos`."""

from __future__ import annotations

from fray.job import JobContext
from tests.actors.chaos import Outcome, run_chaos
from tests.actors.cluster import Cluster


def test_no_call_reaches_another_incarnation_hangs_or_ends_with_an_error_of_another_type(
    cluster: Cluster, context: JobContext
) -> None:
    outcome = run_chaos(cluster, context, kills=8, seed=1)
    assert outcome.wrong == []
    ends = {"pods ended by SIGKILL": 2, "pods ended by SIGTERM": 2}
    assert {name: outcome.met.pop(name) for name in ends} == ends
    assert set(outcome.met) <= {"answers", "ActorDiedError", "ActorUnavailableError"}
    assert outcome.known


def test_callers_that_know_too_late_are_wrong() -> None:
    outcome = Outcome(known=[1.0] * 98 + [4.9, 9.9])
    outcome.judge_known()
    assert outcome.wrong == ["99 in 100 callers knew only after 9.90 s, not 5 s"]
    outcome = Outcome(known=[1.0] * 199 + [10.1])
    outcome.judge_known()
    assert outcome.wrong == ["100 in 100 callers knew only after 10.10 s, not 10 s"]
    outcome = Outcome(known=[1.0] * 199 + [9.9])
    outcome.judge_known()
    assert outcome.wrong == []

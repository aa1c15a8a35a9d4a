"""A few kills of an actor under callers; the long form is `python -m tests.actors.chaos`."""

from __future__ import annotations

from fray.job import JobContext
from tests.actors.chaos import run_chaos
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

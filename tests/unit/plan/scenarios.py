"""Scenarios of a job's life for `gang_simulator`: how they are set up, and how their end is read."""

from __future__ import annotations

from typing import Any

from fray.plan.lifecycle import Decision
from fray.plan.settings import RetryPolicy
from fray.plan.status import find_condition
from fray.testing import build_frayjob
from fray.vocabulary import ConditionType
from tests.unit.plan.gang_simulator import POLICY, Behaviour, Simulation

__all__ = ["FOREVER", "NEVER_STARTS", "crash", "finished", "simulation", "starts", "verdicts"]

FOREVER = Behaviour(runs_for=None)
NEVER_STARTS = Behaviour(starts_after=None)


def simulation(
    *attempts: dict[int, Behaviour] | Behaviour, policy: RetryPolicy = POLICY, **spec: Any
) -> Simulation:
    """Return a job of 4 hosts; `attempts` say what each attempt's hosts do, the last one for all that follow.

    A dictionary names the hosts that differ from those that run for 10 s and succeed.
    """

    def behaviour(attempt: int, rank: int) -> Behaviour:
        if not attempts:
            return Behaviour()
        this = attempts[min(attempt, len(attempts)) - 1]
        return this if isinstance(this, Behaviour) else this.get(rank, Behaviour())

    spec = {"replicas": 4, **spec}
    return Simulation(build_frayjob(**spec), behaviour, policy)


def crash(after: float = 5, code: int = 1) -> Behaviour:
    """Return a host that fails some seconds after its start."""
    return Behaviour(runs_for=after, exit_code=code)


def finished(decision: Decision) -> tuple[str | None, str | None, str]:
    """Return phase, reason and message of a job that has ended."""
    status = decision.status
    assert decision.finished
    assert status.completion_time is not None
    condition = find_condition(status, ConditionType(status.phase or ""))
    both = find_condition(status, ConditionType.FINISHED)
    assert condition is not None
    assert both is not None
    assert condition.status == both.status == "True"
    assert condition.reason == both.reason == status.reason
    assert condition.message == both.message
    return status.phase, status.reason, condition.message


def verdicts(sim: Simulation) -> list[tuple[str | None, str | None]]:
    """Return verdict and reason of every attempt there was."""
    return [(attempt.verdict, attempt.reason) for attempt in sim.history.values()]


def starts(sim: Simulation) -> list[tuple[float, str]]:
    """Return when attempts were started."""
    return [(moment, done) for moment, done in sim.story if done.startswith("start")]

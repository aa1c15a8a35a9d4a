"""Whatever happens in whatever order, a job keeps its promises (those of `gang_simulator`), and it ends."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from e2e.chaos.oracle import Budgets, Ended, Way, find_mismatch, predict
from fray.plan.observation import HostPhase
from fray.plan.settings import RetryPolicy
from fray.testing import build_frayjob
from fray.vocabulary import Phase, Reason, VerdictKind
from tests.unit.plan.gang_simulator import Behaviour, Simulation

TIMEOUTS = st.sampled_from(
    [
        {},
        {"pendingSeconds": 20},
        {"activeSeconds": 20},
        {"totalSeconds": 60},
        {"pendingSeconds": 5, "activeSeconds": 9},
    ]
)
SHAPES = st.sampled_from(
    [
        {"replicas": 1},
        {"replicas": 3},
        {"replicas": 2, "resources": {"tpu": {"type": "v5p-16"}}},
    ]
)
RANKS = st.integers(0, 3)


class AnyLife(RuleBasedStateMachine):
    """Hosts start and end, users stop and suspend, time passes, and the caller looks, or dies looking."""

    sim: Simulation

    @initialize(
        shape=SHAPES, timeouts=TIMEOUTS, failures=st.integers(0, 3), pause=st.sampled_from([0.0, 10.0])
    )
    def submit(self, shape: dict[str, Any], timeouts: dict[str, int], failures: int, pause: float) -> None:
        job = build_frayjob(timeouts=timeouts, retries={"failures": failures}, **shape)
        by_hand = Behaviour(starts_after=None, runs_for=None, ends_after_sigterm=3)
        self.sim = Simulation(job, lambda _attempt, _rank: by_hand, RetryPolicy(pause, 40))
        self.sim.look()

    @rule()
    def look(self) -> None:
        self.sim.look()

    @rule()
    def die_before_writing(self) -> None:
        self.sim.look(dies="before writing")

    @rule()
    def die_before_acting(self) -> None:
        self.sim.look(dies="before acting")

    @rule(seconds=st.sampled_from([0.001, 1.0, 3.0, 10.0, 61.0]))
    def pass_time(self, seconds: float) -> None:
        self.sim.advance(seconds)

    @precondition(lambda self: self.sim.hosts)
    @rule(rank=RANKS)
    def start_host(self, rank: int) -> None:
        host = self.sim.host(rank % len(self.sim.hosts[max(self.sim.hosts)]))
        if host.observation.phase is HostPhase.PENDING:
            host.starts_at = self.sim.now
            host.live_until(self.sim.now)

    @precondition(lambda self: self.sim.hosts)
    @rule()
    def start_all(self) -> None:
        for rank in range(len(self.sim.hosts[max(self.sim.hosts)])):
            self.start_host(rank)

    @precondition(lambda self: self.sim.hosts)
    @rule(rank=RANKS, exit_code=st.sampled_from([0, 0, 1, 137, 255]))
    def end_host(self, rank: int, exit_code: int) -> None:
        host = self.sim.host(rank % len(self.sim.hosts[max(self.sim.hosts)]))
        if host.observation.phase is HostPhase.RUNNING:
            host.end(exit_code, at=self.sim.now)

    @precondition(lambda self: self.sim.hosts)
    @rule()
    def succeed_all(self) -> None:
        self.start_all()
        for host in self.sim.hosts[max(self.sim.hosts)]:
            if host.observation.phase is HostPhase.RUNNING:
                host.end(0, at=self.sim.now)

    @rule(rank=RANKS, exit_code=st.sampled_from([1, 137]))
    def live_through_an_attempt_that_fails(self, rank: int, exit_code: int) -> None:
        self.look()
        if self.sim.hosts:
            self.start_all()
            self.end_host(rank, exit_code)
        for _ in range(5):
            self.sim.advance(3)
            self.look()

    @rule(really=st.sampled_from([False] * 9 + [True]))
    def stop(self, really: bool) -> None:
        if really:
            self.sim.change(stopped=True)

    @rule(suspend=st.sampled_from([True, False, False]))
    def suspend_or_resume(self, suspend: bool) -> None:
        self.sim.change(suspend=suspend)

    def teardown(self) -> None:
        """In every state, a job that is stopped ends, and says how."""
        if not hasattr(self, "sim"):
            return
        self.sim.change(stopped=True)
        decision = self.sim.run(passes=20)
        assert decision.finished
        assert all(host.observation.ended for hosts in self.sim.hosts.values() for host in hosts)
        ends = predict(Budgets(self.sim.job.spec.retries.failures, preemptions=0), self.ways)
        assert find_mismatch(ends, self.sim.status.to_manifest()) is None
        assert len(self.sim.history) in {len(end.attempts) for end in ends}, "numbered without gaps"
        assert self.sim.status.retries is not None
        assert self.sim.status.retries.preemptions_used == 0

    def ways(self, number: int) -> list[Way]:
        """Return how an attempt ended, by what its status said; one that never began was stopped."""
        if number not in self.sim.history:
            return [Way(None, Phase.STOPPED)]
        attempt = self.sim.history[number]
        assert attempt.verdict, "every attempt has a verdict"
        assert attempt.reason
        return [Way(Ended(VerdictKind(attempt.verdict), frozenset({Reason(attempt.reason)})))]


AnyLife.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
)
TestAnyLife = AnyLife.TestCase

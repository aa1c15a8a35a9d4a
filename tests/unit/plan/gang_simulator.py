"""A caller of `decide` in a world without clocks, processes or clusters.

The world has hosts that start, run and end as the test says; the caller observes them, decides, writes the
status through JSON and acts, as the operator and the local backend do. At each pass the promises of
`fray.plan.lifecycle` that hold of every job are checked (`_check`): a scenario states only its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from fray.plan.gang import derive_gang
from fray.plan.lifecycle import Decision, EndAttempt, StartAttempt, decide
from fray.plan.observation import GangObservation, HostObservation, HostPhase, Waiting
from fray.plan.settings import RetryPolicy
from fray.vocabulary import VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, FrayJobStatus, RetryCounts
from tests.unit.plan.frayjobs import with_spec, with_status

__all__ = ["POLICY", "START", "Behaviour", "Simulation"]

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
POLICY = RetryPolicy(initial_seconds=10, cap_seconds=40)


@dataclass(frozen=True)
class Behaviour:
    """What a host does by itself: times in seconds, None for never."""

    starts_after: float | None = 1
    runs_for: float | None = 10
    exit_code: int = 0
    ends_after_sigterm: float = 2


@dataclass
class Host:
    """One host of the world."""

    observation: HostObservation
    starts_at: datetime | None
    behaviour: Behaviour
    ends_at: datetime | None = None
    exit_code: int = 0

    def next_event(self) -> datetime | None:
        """Return when something happens to it by itself."""
        if self.observation.ended:
            return None
        moments = [self.starts_at if self.observation.phase is HostPhase.PENDING else None, self.ends_at]
        return min((moment for moment in moments if moment is not None), default=None)

    def live_until(self, now: datetime) -> None:
        """Let happen what is due."""
        if (
            self.observation.phase is HostPhase.PENDING
            and self.starts_at is not None
            and self.starts_at <= now
        ):
            self.observation = replace(
                self.observation, phase=HostPhase.RUNNING, started_at=self.starts_at, node=f"node-{self.rank}"
            )
            if self.ends_at is None and self.behaviour.runs_for is not None:
                self.ends_at = self.starts_at + timedelta(seconds=self.behaviour.runs_for)
                self.exit_code = self.behaviour.exit_code
        if not self.observation.ended and self.ends_at is not None and self.ends_at <= now:
            self.end(self.exit_code, at=self.ends_at)

    @property
    def rank(self) -> int:
        """Its rank."""
        return self.observation.rank

    def end(self, exit_code: int, *, at: datetime) -> None:
        """Let it end."""
        phase = HostPhase.SUCCEEDED if exit_code == 0 else HostPhase.FAILED
        self.observation = replace(self.observation, phase=phase, exit_code=exit_code, ended_at=at)

    def terminate(self, now: datetime) -> None:
        """Send SIGTERM, as often as one likes; a host that hasn't started never will."""
        if self.observation.phase is HostPhase.PENDING:
            self.end(143, at=now)
        elif not self.observation.ended:
            end = now + timedelta(seconds=self.behaviour.ends_after_sigterm)
            if self.ends_at is None or end < self.ends_at:
                self.ends_at, self.exit_code = end, 143


@dataclass
class Simulation:
    """A job, the world it runs in, and the caller that looks after it.

    `behaviour` says what the host of an attempt and rank does; `story` records what was done, in seconds
    since the start.
    """

    job: FrayJob
    behaviour: Callable[[int, int], Behaviour] = lambda _attempt, _rank: Behaviour()
    policy: RetryPolicy = POLICY
    now: datetime = START
    refusal: Waiting | None = None
    """Why no hosts can be created, where they can't."""
    hosts: dict[int, list[Host]] = field(default_factory=dict)
    created_at: dict[int, datetime] = field(default_factory=dict)
    """When the hosts of each attempt were created."""
    story: list[tuple[float, str]] = field(default_factory=list)
    history: dict[int, AttemptStatus] = field(default_factory=dict)
    last: Decision | None = None

    # --- what a test does ------------------------------------------------------------------------------

    @property
    def status(self) -> FrayJobStatus:
        """The status that was written last."""
        return self.job.status

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return (self.now - START).total_seconds()

    def change(self, **spec: object) -> None:
        """Change the spec, as the job's author does (Python names)."""
        self.job = with_spec(self.job, **spec)

    def advance(self, seconds: float) -> None:
        """Let time pass, and what happens by itself happen, without anybody looking."""
        self.now += timedelta(seconds=seconds)
        for hosts in self.hosts.values():
            for host in hosts:
                host.live_until(self.now)

    def advance_to(self, seconds: float) -> None:
        """Let time pass up to a moment, in seconds since the start."""
        self.advance(seconds - self.seconds)

    def look(self, *, dies: str = "") -> Decision:
        """Make one pass; the caller may die `before writing` or `before acting`."""
        observed = self.observe()
        decision = self._decide(self.job, observed, now=self.now)
        self._check(decision, observed)
        if dies == "before writing":
            return decision
        self._write(decision)
        if dies == "before acting":
            return decision
        self._act(decision)
        self.last = decision
        return decision

    def run(self, *, until: float | None = None, passes: int = 500) -> Decision:
        """Look whenever something happens, until the job has finished or a moment has come."""
        limit = None if until is None else START + timedelta(seconds=until)
        for _ in range(passes):
            decision = self.look()
            if decision.finished:
                return decision
            moment = self._next_event(decision)
            if limit is not None and (moment is None or moment > limit):
                self.advance((limit - self.now).total_seconds())
                return self.look()
            assert moment is not None, f"nothing will ever happen: {self.status.phase} {self.story}"
            self.advance((moment - self.now).total_seconds())
        raise AssertionError(f"not finished after {passes} passes: {self.story[-5:]}")

    def observe(self) -> GangObservation | None:
        """Return the hosts of the current attempt."""
        return self._observe(self.status)

    def host(self, rank: int) -> Host:
        """Return a host of the newest attempt."""
        return self.hosts[max(self.hosts)][rank]

    # --- the caller ------------------------------------------------------------------------------------

    def _observe(self, status: FrayJobStatus) -> GangObservation | None:
        number = status.attempts[-1].number if status.attempts else 0
        if number not in self.hosts:
            return None
        hosts = tuple(host.observation for host in self.hosts[number])
        return GangObservation(hosts, created_at=self.created_at[number])

    def _decide(self, job: FrayJob, observed: GangObservation | None, *, now: datetime) -> Decision:
        refusal = self.refusal if observed is None else None
        return decide(job, observed, now=now, policy=self.policy, refusal=refusal)

    def _write(self, decision: Decision) -> None:
        if decision.status != self.status:
            self.job = with_status(self.job, decision.status)
        for attempt in decision.status.attempts:
            self.history[attempt.number] = attempt

    def _act(self, decision: Decision) -> None:
        match decision.action:
            case StartAttempt(number):
                if number not in self.hosts and self.refusal is None:
                    self.story.append((self.seconds, f"start {number}"))
                    self.hosts[number], self.created_at[number] = self._create(number), self.now
            case EndAttempt(number, reason):
                if self.story[-1][1] != f"end {number} {reason}":
                    self.story.append((self.seconds, f"end {number} {reason}"))
                for host in self.hosts[number]:
                    host.terminate(self.now)

    def _create(self, number: int) -> list[Host]:
        gang = derive_gang(self.job.spec)
        hosts = []
        for slice_index in range(gang.slices):
            for index in range(gang.hosts_per_slice):
                rank = gang.rank(slice_index=slice_index, host=index)
                behaviour = self.behaviour(number, rank)
                after = behaviour.starts_after
                seen = HostObservation(slice_index, index, rank, f"pod-{number}-{rank}", HostPhase.PENDING)
                starts_at = None if after is None else self.now + timedelta(seconds=after)
                hosts.append(Host(seen, starts_at, behaviour))
        return hosts

    def _next_event(self, decision: Decision) -> datetime | None:
        events = [host.next_event() for hosts in self.hosts.values() for host in hosts]
        moments = [moment for moment in (*events, decision.wake_at) if moment is not None]
        return min(moments, default=self.now if decision.action else None)

    # --- promises that hold of every job ---------------------------------------------------------------

    def _check(self, decision: Decision, observed: GangObservation | None) -> None:
        status = decision.status
        again = self._decide(self.job, observed, now=self.now)
        assert again == decision, "the same input must decide the same"
        assert FrayJobStatus.from_manifest(status.to_manifest()) == status, "it survives being written"
        if self.last is not None and self.last.finished:
            assert decision == Decision(self.status), "a finished job never changes again"
        if decision.finished:
            assert decision.action is None
            assert decision.wake_at is None
        self._check_attempts(decision)
        self._check_written(decision)
        replicas = status.replicas
        assert replicas is not None
        counted = replicas.pending + replicas.running + replicas.succeeded + replicas.failed
        assert counted <= replicas.total == derive_gang(self.job.spec).hosts
        if not isinstance(decision.action, StartAttempt) and (observed is None or observed.ended):
            assert replicas.pending == replicas.running == 0

    def _check_attempts(self, decision: Decision) -> None:
        status = decision.status
        numbers = [attempt.number for attempt in status.attempts]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
        assert len(numbers) <= 10
        assert not self.history or numbers[-1] in (max(self.history), max(self.history) + 1), "no gaps"
        assert all(attempt.verdict is not None for attempt in status.attempts[:-1]), "one live attempt"
        for attempt in status.attempts:
            before = self.history.get(attempt.number)
            if before is not None and before.verdict is not None:
                assert attempt == before, "a verdict is final"
            if before is not None and before.reason is not None:
                assert attempt.reason == before.reason, "the first cause is final"
        known = self.history | {attempt.number: attempt for attempt in status.attempts}
        verdicts = [attempt.verdict for attempt in known.values()]
        assert status.retries == RetryCounts(
            failures_used=verdicts.count(VerdictKind.FAILURE),
            preemptions_used=verdicts.count(VerdictKind.PREEMPTION),
        )
        if isinstance(decision.action, StartAttempt):
            assert decision.action.number == numbers[-1]
            others = [h for n, hosts in self.hosts.items() if n != decision.action.number for h in hosts]
            assert all(host.observation.ended for host in others), "two attempts would run at once"
            assert not self.job.spec.stopped
            assert not self.job.spec.suspend

    def _check_written(self, decision: Decision) -> None:
        """A second look at the same world, even later, writes nothing and does the same."""
        written = with_status(self.job, decision.status)
        observed = self._observe(written.status)
        starting = isinstance(decision.action, StartAttempt)
        if starting and observed is not None:
            return  # the hosts exist already: the next pass is about them
        timeouts = self.job.spec.timeouts
        limited = timeouts.total_seconds is not None or timeouts.pending_seconds is not None
        for now in (self.now, self.now + timedelta(milliseconds=1)):
            if decision.wake_at is not None and now >= decision.wake_at:
                continue
            if starting and limited and now > self.now:
                continue  # a time limit may pass while hosts are being created
            second = self._decide(written, observed, now=now)
            assert second.status == decision.status, "nothing has happened, so nothing is written"
            assert second.action == decision.action

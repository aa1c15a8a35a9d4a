"""Whatever happens to hosts, nodes, JobSets and the operator: attempts of a job never run beside each other.

A small world of the objects that a pass sees, beside what really runs: a machine that doesn't answer runs on,
whatever its objects say. Kubelets, JobSet and the collector do what they do when time passes; the operator
makes its passes as `reconcile` does, and may die between two steps of one. What is on a machine that doesn't
answer isn't waited for without end, so the promise is about those that do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fray.kube.api import Manifest
from fray.plan.children import is_left_to_itself
from fray.plan.gang import derive_gang
from fray.plan.lifecycle import EndAttempt, StartAttempt, decide
from fray.plan.observation import GangObservation
from fray.plan.pod_observation import derive_gang_observation, is_jobset_finished
from fray.plan.settings import RetryPolicy
from fray.plan.timestamps import format_time
from fray.testing import build_frayjob
from fray.vocabulary import (
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_JOB,
    LABEL_JOB_INDEX,
    LABEL_JOB_UID,
)
from fray_operator.ownership import find_leftovers
from tests.unit.plan.frayjobs import with_spec, with_status

START = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
UID = "u-1"
NODES = 3
POLICY = RetryPolicy(initial_seconds=5, cap_seconds=20)


@dataclass(eq=False)
class JobSet:
    """A JobSet; `end` is its terminal condition."""

    attempt: int
    end: str | None = None
    leaving: bool = False

    def manifest(self) -> Manifest:
        labels = {LABEL_JOB: "train", LABEL_JOB_UID: UID, LABEL_ATTEMPT: str(self.attempt)}
        owner = {"kind": "FrayJob", "name": "train", "uid": UID, "controller": True}
        metadata: dict[str, Any] = {"name": f"train-a{self.attempt}", "labels": labels}
        metadata["ownerReferences"] = [owner]
        if self.leaving:
            metadata["deletionTimestamp"] = format_time(START)
        ends = [{"type": self.end, "status": "True"}] if self.end else []
        return {"metadata": metadata, "spec": {"suspend": False}, "status": {"conditions": ends}}


@dataclass(eq=False)
class Pod:
    """A pod, and the process on its node. `takes` is how long that needs to end, at most its grace."""

    attempt: int
    of: JobSet
    rank: int
    made: datetime
    node: int
    takes: int
    alive: bool = False
    code: int | None = None
    started: datetime | None = None
    ended: datetime | None = None
    asked: datetime | None = None

    def manifest(self) -> Manifest:
        labels = {LABEL_JOB: "train", LABEL_JOB_UID: UID, LABEL_ATTEMPT: str(self.attempt)}
        labels |= {LABEL_JOB_INDEX: "0", LABEL_COMPLETION_INDEX: str(self.rank)}
        metadata: dict[str, Any] = {"name": f"pod-{self.attempt}-{self.rank}", "labels": labels}
        metadata["creationTimestamp"] = format_time(self.made)
        if self.asked is not None:
            due = self.asked + timedelta(seconds=30)
            metadata |= {"deletionTimestamp": format_time(due), "deletionGracePeriodSeconds": 30}
        state: dict[str, Any] = {}
        if self.ended is not None:
            times = {
                "startedAt": format_time(self.started or self.ended),
                "finishedAt": format_time(self.ended),
            }
            state = {"terminated": {"exitCode": self.code, **times}}
        elif self.started is not None:
            state = {"running": {"startedAt": format_time(self.started)}}
        phase = {None: "Running" if self.started else "Pending", 0: "Succeeded"}.get(self.code, "Failed")
        containers = [{"name": "main", "state": state}]
        spec = {"nodeName": f"node-{self.node}"}
        return {
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": phase, "containerStatuses": containers},
        }


@dataclass
class World:
    """What there is, and what runs. `silent` are nodes that don't answer; what they run runs on."""

    hosts: int
    now: datetime = START
    pods: list[Pod] = field(default_factory=list)
    jobsets: dict[int, JobSet] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)

    def of(self, jobset: JobSet) -> list[Pod]:
        return [pod for pod in self.pods if pod.of is jobset]

    def running(self) -> list[Pod]:
        """Pods whose processes run on nodes that answer."""
        return [pod for pod in self.pods if pod.alive and pod.node not in self.silent]

    def end(self, pod: Pod, code: int) -> None:
        pod.alive, pod.code, pod.ended = False, code, self.now

    def settle(self) -> None:
        """Let kubelets and controllers do what is due; twice, since one sees what another has done."""
        for _ in range(2):
            for pod in list(self.pods):
                due = pod.asked is not None and self.now >= pod.asked + timedelta(seconds=pod.takes)
                if due and pod.node not in self.silent:
                    self.pods.remove(pod)
                    pod.of.end = pod.of.end or "Failed"  # its Job counts it, and may fail none
            for jobset in list(self.jobsets.values()):
                self._control(jobset)

    def _control(self, jobset: JobSet) -> None:
        pods = self.of(jobset)
        if jobset.end is None and not jobset.leaving:
            if any(pod.code for pod in pods):
                jobset.end = "Failed"
            elif len(pods) == self.hosts and all(pod.code == 0 for pod in pods):
                jobset.end = "Completed"
        if jobset.leaving or jobset.end == "Failed":
            for pod in pods:
                if jobset.leaving or pod.code is None:
                    pod.asked = pod.asked or self.now
        if jobset.leaving and not pods:
            del self.jobsets[jobset.attempt]


class AnyWorld(RuleBasedStateMachine):
    """Hosts, nodes, users and the operator in any order."""

    world: World

    @initialize(hosts=st.integers(1, 2))
    def submit(self, hosts: int) -> None:
        self.world = World(hosts)
        retries = {"failures": 1000, "preemptions": 1000}
        self.job = build_frayjob(metadata={"uid": UID}, replicas=hosts, retries=retries)

    # --- the operator -----------------------------------------------------------------------------------

    def observe(self) -> GangObservation | None:
        attempts = self.job.status.attempts
        jobset = self.world.jobsets.get(attempts[-1].number) if attempts else None
        if jobset is None:
            return None
        pods = [pod.manifest() for pod in self.world.of(jobset)]
        return derive_gang_observation(derive_gang(self.job.spec), jobset.manifest(), pods)

    @rule(dies=st.sampled_from(["", "", "", "", "before writing", "before acting"]))
    def look(self, dies: str) -> None:
        observed = self.observe()
        decision = decide(self.job, observed, now=self.world.now, policy=POLICY)
        if dies == "before writing":
            return
        self.job = with_status(self.job, decision.status)
        if dies == "before acting":
            return
        match decision.action:
            case StartAttempt(number):
                self.start(number)
            case EndAttempt(number, reason):
                jobset = self.world.jobsets[number]
                assert observed is not None
                if not is_left_to_itself(reason, jobset.manifest(), observed, now=self.world.now):
                    jobset.leaving = True

    def start(self, number: int) -> None:
        world = self.world
        left = find_leftovers(
            self.job,
            number,
            jobsets=[jobset.manifest() for jobset in world.jobsets.values()],
            pods=[pod.manifest() for pod in world.pods],
            now=world.now,
        )
        if left is not None:
            for jobset in left.jobsets:
                world.jobsets[int(jobset["metadata"]["labels"][LABEL_ATTEMPT])].leaving = True
            return
        if number in world.jobsets:
            return  # adopted
        assert not world.running(), f"hosts may still run on nodes that answer: {world.running()}"
        jobset = world.jobsets[number] = JobSet(number)
        for rank in range(world.hosts):
            node, takes = (rank + number) % NODES, (29, 0, 13)[(rank + number) % 3]
            world.pods.append(Pod(number, jobset, rank, world.now, node, takes))

    # --- the cluster ------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 3, 10, 31, 61, 400]))
    def pass_time(self, seconds: int) -> None:
        self.world.now += timedelta(seconds=seconds)
        self.world.settle()

    @rule()
    def run_an_attempt(self) -> None:
        """Let a good while pass in which nothing goes wrong."""
        for _ in range(3):
            self.look("")
            self.start_hosts()
            self.pass_time(10)
        self.look("")

    @rule()
    def start_hosts(self) -> None:
        world = self.world
        for pod in world.pods:
            if pod.started is None and pod.asked is None and pod.node not in world.silent:
                pod.alive, pod.started = True, world.now

    @precondition(lambda self: any(pod.alive for pod in self.world.pods))
    @rule(chosen=st.integers(0, 5), code=st.sampled_from([0, 1, 137]))
    def end_host(self, chosen: int, code: int) -> None:
        alive = [pod for pod in self.world.pods if pod.alive and pod.node not in self.world.silent]
        if alive:
            self.world.end(alive[chosen % len(alive)], code)
            self.world.settle()

    @rule(node=st.integers(0, NODES - 1))
    def fall_silent(self, node: int) -> None:
        self.world.silent.add(node)

    @precondition(lambda self: self.world.silent)
    @rule()
    def answer_again(self) -> None:
        """Nodes come back; what should have ended for long has, before they say so."""
        self.world.silent.clear()
        self.world.settle()

    # --- people -----------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.pods)
    @rule(chosen=st.integers(0, 5))
    def delete_a_pod(self, chosen: int) -> None:
        pod = self.world.pods[chosen % len(self.world.pods)]
        pod.asked = pod.asked or self.world.now
        self.world.settle()

    @precondition(lambda self: self.world.jobsets)
    @rule(chosen=st.integers(0, 5), background=st.booleans())
    def delete_a_jobset(self, chosen: int, background: bool) -> None:
        jobsets = self.world.jobsets
        number = sorted(jobsets)[chosen % len(jobsets)]
        if background:  # it goes at once, its pods follow
            gone = jobsets.pop(number)
            for pod in self.world.of(gone):
                pod.asked = pod.asked or self.world.now
        else:
            jobsets[number].leaving = True
        self.world.settle()

    @precondition(lambda self: self.job.status.attempts)
    @rule()
    def empty_the_status(self) -> None:
        """Somebody takes the attempts out of the status; what `find_unrecorded` puts back isn't here."""
        if not any(one.end is None and not one.leaving for one in self.world.jobsets.values()):
            last = self.job.status.attempts[-1].model_copy(update={"message": None})
            status = self.job.status.model_copy(update={"attempts": [last]})
            self.job = with_status(self.job, status)

    @rule(suspend=st.sampled_from([True, False, False]))
    def suspend_or_resume(self, suspend: bool) -> None:
        self.job = with_spec(self.job, suspend=suspend)

    # --- what holds -------------------------------------------------------------------------------------

    @invariant()
    def at_most_one_attempt_is_meant_to_run(self) -> None:
        if not hasattr(self, "world"):
            return
        going = [one for one in self.world.jobsets.values() if not one.leaving]
        live = [one.attempt for one in going if is_jobset_finished(one.manifest()) is None]
        assert len(live) <= 1, live

    def teardown(self) -> None:
        """With all nodes back and nobody about, an attempt runs in the end: no wait is endless."""
        if not hasattr(self, "world"):
            return
        self.world.silent.clear()
        self.job = with_spec(self.job, suspend=False)
        for _ in range(12):
            self.look("")
            self.pass_time(31)
            self.start_hosts()
            if self.world.running() or self.job.status.phase == "Succeeded":
                return
        raise AssertionError(f"no attempt runs: {self.job.status}")


AnyWorld.TestCase.settings = settings(max_examples=60, stateful_step_count=50, derandomize=True)
TestAnyWorld = AnyWorld.TestCase

"""The table of situations, each judged to the end of its attempt by the functions that the operator uses.

The manifests are made by builders, with the words of the source that each situation names; where a scenario
on a real cluster (e2e) brings one about, it says which. They pass through what the operator's cache keeps.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fray.plan.children import is_left_to_itself
from fray.plan.gang import derive_gang
from fray.plan.job_evidence import is_unexplained, with_job_evidence
from fray.plan.lifecycle import Decision, EndAttempt, decide
from fray.plan.node_evidence import Nodes, derive_next_look, needs_nodes, with_node_evidence
from fray.plan.observation import GangObservation
from fray.plan.pod_observation import derive_gang_observation
from fray.plan.remains import tells_of_end
from fray.plan.scheduling import build_node_summary
from fray.plan.settings import RetryPolicy
from fray.testing import build_frayjob
from fray.vocabulary import LABEL_JOBSET_UID, Reason, VerdictKind
from fray.wire.frayjob import FrayJob
from fray.wire.status import AttemptStatus, FrayJobStatus
from fray_operator.informer import trim_jobset, trim_pod
from tests.unit.plan.frayjobs import with_status
from tests.unit.plan.verdict_situations import deleted, gangs, nodes, own_failures, taken_away, vanished
from tests.unit.plan.verdict_situations.manifests import STARTED, T0, at, jobset
from tests.unit.plan.verdict_situations.situation import Scene, Situation

POLICY = RetryPolicy(10, 360, settle_seconds=5, unreachable_seconds=60)
LOOK_SECONDS = 15
PATIENCE_SECONDS = 3600
SITUATIONS = (
    *taken_away.SITUATIONS,
    *nodes.SITUATIONS,
    *own_failures.SITUATIONS,
    *deleted.SITUATIONS,
    *vanished.SITUATIONS,
    *gangs.SITUATIONS,
)


class Attempt:
    """The first attempt of a job, looked after as the operator does."""

    def __init__(self, situation: Situation) -> None:
        attempt = AttemptStatus(number=1, job_set="train-a1", start_time=at(STARTED - 101))
        if situation.ran:
            attempt = attempt.model_copy(update={"running_time": at(STARTED)})
        status = FrayJobStatus(attempts=[attempt], start_time=at(STARTED - 101))
        retries = {"retries": {"failures": 3, "preemptions": 3}}
        self.job: FrayJob = with_status(build_frayjob(**retries, **situation.shape), status)
        self.now = T0
        self.deleted_at: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the first failure of the situation."""
        return (self.now - T0).total_seconds()

    @property
    def status(self) -> AttemptStatus:
        """The attempt as its status tells of it."""
        return self.job.status.attempts[0]

    def look(self, scene: Scene) -> float | None:
        """Make one pass; return the seconds after which the next one is due by itself."""
        observed, jobset = self.observe(scene)
        decision = decide(self.job, observed, now=self.now, policy=POLICY)
        self.job = with_status(self.job, decision.status)
        again = None if observed is None else derive_next_look(observed, now=self.now)
        if isinstance(decision.action, EndAttempt) and jobset is not None and observed is not None:
            left = is_left_to_itself(decision.action.reason, jobset, observed, now=self.now)
            if not left and self.deleted_at is None:
                self.deleted_at, again = self.seconds, 0.01
        return self._next(decision, again)

    def _next(self, decision: Decision, again: float | None) -> float | None:
        looks = [again, LOOK_SECONDS if isinstance(decision.action, EndAttempt) else None]
        if decision.wake_at is not None:
            looks.append((decision.wake_at - self.now).total_seconds())
        return min((look for look in looks if look is not None), default=None)

    def observe(self, scene: Scene) -> tuple[GangObservation | None, Mapping[str, Any] | None]:
        """Return the gang and its JobSet, as the operator's Observer does."""
        if scene.jobset is None:
            return None, None
        jobset: dict[str, Any] = copy.deepcopy(trim_jobset(scene.jobset))
        pods = [trim_pod(pod) for pod in scene.pods if is_of(pod, jobset)]
        if self.deleted_at is not None:
            jobset["metadata"]["deletionTimestamp"] = at(self.deleted_at)
            pods = [leaving(pod, self.deleted_at) for pod in pods]
        gone = [pod for each in scene.gone if is_of(each, jobset) and tells_of_end(pod := trim_pod(each))]
        gang = derive_gang_observation(derive_gang(self.job.spec), jobset, pods, gone=gone)
        if is_unexplained(self.status, gang):
            gang = with_job_evidence(gang, scene.jobs)
        if needs_nodes(self.status, gang, now=self.now, settle_seconds=POLICY.settle_seconds):
            listed = None if scene.nodes is None else [build_node_summary(node) for node in scene.nodes]
            seen = Nodes.of(listed, unreachable_seconds=POLICY.unreachable_seconds)
            gang = with_node_evidence(gang, seen, now=self.now)
        return gang, jobset


def is_of(pod: Mapping[str, Any], jobset: Mapping[str, Any]) -> bool:
    """Return whether a pod is of this very JobSet, as the operator sorts them."""
    return bool(pod["metadata"]["labels"][LABEL_JOBSET_UID] == jobset["metadata"]["uid"])


def leaving(pod: Mapping[str, Any], since: float) -> dict[str, Any]:
    """Return a pod whose JobSet is being deleted: it was asked to end then, if not before."""
    asked = {"deletionTimestamp": at(since + 30), "deletionGracePeriodSeconds": 30}
    return {**pod, "metadata": asked | pod["metadata"]}


def judge(situation: Situation) -> tuple[Attempt, float]:
    """Look at the scenes until the attempt has its verdict; return it, and how many seconds that took."""
    attempt = Attempt(situation)
    ends = [scene.at for scene in situation.scenes[1:]] + [situation.scenes[-1].at + PATIENCE_SECONDS]
    for scene, end in zip(situation.scenes, ends, strict=True):
        attempt.now = T0 + timedelta(seconds=scene.at)
        while attempt.now < T0 + timedelta(seconds=end):
            after = attempt.look(scene)
            if attempt.status.verdict is not None:
                return attempt, attempt.seconds
            if after is None:
                break
            attempt.now += timedelta(seconds=max(after, 0.001))
    raise AssertionError(f"no verdict after {attempt.now - T0}: {attempt.status}")


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_the_situation_is_judged(situation: Situation) -> None:
    attempt, seconds = judge(situation)
    ended = attempt.status
    assert (ended.reason, ended.verdict) == (situation.reason, situation.verdict), ended.message
    assert (ended.rank, ended.exit_code) == (situation.first, situation.code)
    if situation.first is None:
        assert (ended.pod, ended.node) == (None, None)
    elif situation.pod:
        assert ended.pod is not None
        assert ended.pod.startswith("train-a1-slice-")
    else:
        assert ended.pod is None
    for words in situation.says:
        assert words in ended.story
    assert seconds <= situation.within
    check_counts(attempt.job, situation.verdict)


EXITED = [
    situation
    for situation in own_failures.SITUATIONS
    if "finishedAt" in json.dumps(situation.scenes[0].pods) and situation.scenes[0].jobset == jobset("Failed")
]


@pytest.mark.parametrize("situation", EXITED, ids=lambda situation: situation.name)
def test_the_jobset_of_a_host_that_exited_stays_with_its_logs(situation: Situation) -> None:
    """JobSet says a moment later than the pod that all is over: until then it isn't deleted."""
    first = situation.scenes[0]
    before = replace(first, at=first.at - 1, jobset=jobset())
    attempt, _ = judge(replace(situation, scenes=(before, *situation.scenes)))
    assert attempt.deleted_at is None


def check_counts(job: FrayJob, verdict: VerdictKind) -> None:
    """Check that the budget was charged once, and no other."""
    assert job.status.retries is not None
    used = job.status.retries.to_manifest()
    assert used.get("failuresUsed", 0) == (verdict is VerdictKind.FAILURE)
    assert used.get("preemptionsUsed", 0) == (verdict is VerdictKind.PREEMPTION)
    assert used.get("misplacementsUsed", 0) == (verdict is VerdictKind.MISPLACEMENT)


def test_the_table_has_a_row_for_each_end_of_an_attempt() -> None:
    known = {situation.reason for situation in SITUATIONS}
    ends = set(Reason) - set(list(Reason)[: list(Reason).index(Reason.COMPLETED)])
    of_others = {Reason.RUNNER_LOST, Reason.WORKERS_FAILED, Reason.WORKER_IMAGE_MISMATCH}
    assert ends - known == of_others, "those of no host of a gang are tested where they arise"
    assert [name for name, count in Counter(each.name for each in SITUATIONS).items() if count > 1] == []
    assert len(SITUATIONS) >= 60

"""The parts of the chaos against a real API server: what the agent and the user do, seen and predicted right.

The operator is the real one; the other controllers are played by hand, so that a test decides what is late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from e2e.chaos.agent import AT_ONCE, evict, remove_pod
from e2e.chaos.judgement import judge
from e2e.chaos.plan import LANES, Act, Deed, JobPlan, Kind
from e2e.chaos.prediction import predict
from e2e.chaos.recorder import Recorder, collection_of
from e2e.chaos.records import Hit
from e2e.chaos.user import User
from e2e.cluster.api import Api, Response
from e2e.cluster.controlplane import ControlPlane
from fray.vocabulary import FRAYJOB_PLURAL
from tests.integration.controller.hands import Hands, Manifest, eventually
from tests.integration.controller.operator_thread import OperatorThread

Blow = Callable[[Api, str, str, str], Response]
SUCCEEDS = JobPlan("train", Kind.SUCCEEDS, LANES[1], 60)
STOPPED = JobPlan("train", Kind.STOPPED, LANES[0], None, deeds=(Deed(Act.STOP, 0.0),))
SUSPENDED = JobPlan("train", Kind.SUSPENDED, LANES[0], 60, deeds=(Deed(Act.SUSPEND, 0.0),))
DELETED = JobPlan("train", Kind.DELETED, LANES[0], None, deeds=(Deed(Act.DELETE, 0.0),))
SCALED = JobPlan("train", Kind.SUCCEEDS, LANES[-1], 60, deeds=(Deed(Act.SCALE, 0.0, 3),))


class Scene:
    """One job of a user, recorded."""

    def __init__(self, api: Api, hands: Hands, recorder: Recorder) -> None:
        self.api, self.hands, self.recorder = api, hands, recorder
        self.user = User(api, hands.namespace, recorder, {})

    def submit(self, plan: JobPlan) -> None:
        self.user = User(self.api, self.hands.namespace, self.recorder, {"lane": iter([plan])})
        self.user.tick(more=True)

    def until(self, check: Callable[[], object]) -> None:
        """Let the user act until something is seen."""

        def acted() -> object:
            self.user.tick(more=False)
            self.recorder.check()
            return check()

        eventually(acted, told=lambda: self.recorder.records.jobs[-3:])

    def attempt(self, number: int) -> tuple[Manifest, list[Manifest]]:
        """Let all hosts of an attempt run, and wait until that was seen."""
        jobset = self.hands.await_jobset(f"train-a{number}")
        # By a watch of its own, in a thread of its own: before the job runs, since then the user acts.
        self.until(lambda: self.recorder.last_attempt("train") == number)
        pods = self.hands.run_all(jobset)
        self.until(lambda: len([p for p in self.recorder.living_pods() if p.started]) == len(pods))
        return jobset, pods

    def succeed(self, jobset: Manifest, pods: list[Manifest]) -> None:
        for pod in pods:
            self.hands.exit(pod, 0)
        self.hands.complete(jobset)

    def phase(self) -> str | None:
        seen = self.recorder.job("train")
        return None if seen is None else seen.phase

    def wrong(self) -> list[str]:
        self.until(self.recorder.has_caught_up)
        return judge(self.user.plans, self.recorder.records, {})

    def predicted(self, plan: JobPlan) -> set[str]:
        self.until(self.recorder.has_caught_up)
        return {str(end) for end in predict(plan, self.recorder.records)}


@pytest.fixture
def scene(control_plane: ControlPlane, hands: Hands, operator: OperatorThread) -> Iterator[Scene]:
    api = control_plane.api()
    with Recorder(api, hands.namespace, system=hands.namespace, watch_seconds=1.0) as recorder:
        yield Scene(api, hands, recorder)


@pytest.mark.parametrize("blow", [evict, remove_pod])
def test_a_pod_that_is_hit_long_before_its_end_costs_one_preemption(scene: Scene, blow: Blow) -> None:
    scene.submit(SUCCEEDS)
    jobset, pods = scene.attempt(1)
    victim = scene.recorder.living_pods()[1]
    answer = blow(scene.api, scene.hands.namespace, victim.name, "another uid")
    assert answer.status == 409
    answer = blow(scene.api, scene.hands.namespace, victim.name, victim.uid)
    assert answer.ok, answer.body
    scene.recorder.records.hits.append(Hit(victim.at, "train", 1, victim.uid, victim.node, "hit"))
    # Its kubelet ends it; the Job controller does so to its peers.
    hit = next(pod for pod in pods if pod["metadata"]["name"] == victim.name)
    scene.hands.exit(hit, 143)
    # A pod that has gone tells nothing: the operator is to see the end of this one before.
    scene.until(lambda: scene.phase() == "Stopping")
    scene.hands.fail(jobset)
    scene.hands.delete_pod(hit)
    scene.succeed(*scene.attempt(2))
    scene.until(lambda: scene.phase() == "Succeeded")
    assert scene.predicted(SUCCEEDS) == {"Succeeded after Preemption, Success"}
    assert scene.wrong() == []
    # Nobody else may be blamed for it, and it isn't free.
    scene.recorder.records.hits.clear()
    (problem,) = scene.wrong()
    assert "predicted: Succeeded after Success" in problem


def test_a_stop_comes_after_the_job_ran_and_ends_it(scene: Scene) -> None:
    scene.submit(STOPPED)
    scene.hands.await_jobset("train-a1")
    scene.user.tick(more=False)
    assert scene.recorder.records.acts == []
    scene.attempt(1)
    scene.until(lambda: scene.recorder.records.acts)
    scene.hands.collect_until(lambda: scene.phase() == "Stopped")
    (act,) = scene.recorder.records.acts
    assert (act.act, act.attempt) == (Act.STOP, 1)
    assert scene.wrong() == []


def test_workers_are_scaled_once_the_job_runs(scene: Scene) -> None:
    scene.submit(SCALED)
    scene.attempt(1)
    scene.until(lambda: scene.recorder.records.acts)
    (act,) = scene.recorder.records.acts
    assert (act.act, act.attempt) == (Act.SCALE, 1)
    found = scene.api.get(f"{collection_of(scene.hands.namespace, FRAYJOB_PLURAL)}/train")
    assert found.body["spec"]["workers"]["replicas"] == 3


def test_a_suspended_job_is_resumed_and_succeeds_in_its_next_attempt(scene: Scene) -> None:
    scene.submit(SUSPENDED)
    scene.attempt(1)
    scene.until(lambda: scene.recorder.records.acts)
    scene.hands.collect_until(lambda: scene.phase() == "Suspended")
    scene.hands.edit("train", suspend=False)
    scene.succeed(*scene.attempt(2))
    scene.until(lambda: scene.phase() == "Succeeded")
    assert scene.predicted(SUSPENDED) >= {
        "Succeeded after Suspended, Success",
        "Succeeded after Success",
    }
    assert scene.wrong() == []


def test_a_deleted_job_is_gone_and_nothing_else_is_asked_of_it(scene: Scene) -> None:
    scene.submit(DELETED)
    scene.until(lambda: (seen := scene.recorder.job("train")) is not None and seen.gone)
    assert scene.user.has_ended(DELETED)
    assert scene.wrong() == []
    scene.until(lambda: not scene.user.under_way)


def test_a_second_jobset_and_pods_of_two_attempts_are_seen(scene: Scene) -> None:
    scene.submit(replace(SUCCEEDS, lane=LANES[0]))
    jobset, _ = scene.attempt(1)
    labels = {**jobset["metadata"]["labels"], "fray.dev/attempt": "2"}
    late = {**jobset, "metadata": {**jobset["metadata"], "name": "train-a2", "labels": labels}}
    for field in ("resourceVersion", "uid"):
        late["metadata"].pop(field)
    first = {"name": "again", "labels": jobset["metadata"]["labels"]}
    again = {**late, "metadata": {**late["metadata"], **first}}
    for manifest in (late, again):
        created = scene.api.post(scene.hands.jobsets, manifest)
        assert created.ok, created.body
    (pod,) = scene.hands.pods_of(jobset)
    metadata = {"name": "late", "labels": {**pod["metadata"]["labels"], "fray.dev/attempt": "2"}}
    assert scene.api.post(f"{scene.hands.core}/pods", {"metadata": metadata, "spec": pod["spec"]}).ok
    scene.until(lambda: len(scene.recorder.living_pods()) == 2)
    scene.until(lambda: len({one.uid for one in scene.recorder.records.jobsets}) == 3)
    told = "\n".join(scene.wrong())
    assert "pods of attempts 1 and 2 at once" in told
    assert "attempt 1 had 2 JobSets: train-a1, again" in told


def test_a_pod_can_be_removed_at_once(scene: Scene) -> None:
    scene.submit(STOPPED)
    scene.attempt(1)
    (pod,) = scene.recorder.living_pods()
    assert remove_pod(scene.api, scene.hands.namespace, pod.name, pod.uid, AT_ONCE).ok
    scene.until(lambda: any(seen.gone for seen in scene.recorder.records.pods))

"""The operator writes only when something has happened, and asks for little: counts, no times."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from e2e.faulty_proxy import FaultyProxy
from fray.plan import complaints
from fray.vocabulary import AUTH_SECRET
from fray_operator import nodes, observe, shared_answers
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import Hands, eventually
from tests.integration.controller.operator_thread import OperatorThread, run_operator
from tests.integration.controller.stories import SUCCESS, Life, play

TPU = {"resources": {"tpu": {"type": "v5p-16"}}}
LAST_EVENTS = {
    "running": "AttemptRunning",
    "waiting": "NoMatchingNodePool",
    "failing": "AttemptRunning",
    "backing-off": "AttemptEnded",
    "refused": "PodTemplateInvalid",
    "worked-for": "AttemptRunning",
    "stopping": "AttemptRunning",
    "taken": "NameTaken",
    "finished": "Succeeded",
}
UNFINISHED = (
    "running",
    "waiting",
    "failing",
    "backing-off",
    "suspended",
    "refused",
    "worked-for",
    "stopping",
    "taken",
)


def make_jobs_of_all_kinds(hands: Hands) -> None:
    """Bring jobs into every state in which one can stay for long."""
    hands.submit("running", **TPU)
    hands.submit("waiting", **TPU)
    hands.submit("failing", replicas=2)
    hands.submit("backing-off", retries={"failures": 1})
    hands.submit("suspended", suspend=True)
    hands.submit("refused", podTemplate={"spec": {"containers": "banana"}})
    hands.submit("worked-for", workers={"replicas": 1})
    hands.submit("stopping")
    hands.submit("finished")
    template = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "image"}]}}}}
    theirs = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "taken-a1"},
        "spec": {"replicatedJobs": [{"name": "a", "template": template}]},
    }
    assert hands.api.post(hands.jobsets, theirs).ok
    hands.submit("taken")
    for name in ("running", "worked-for", "failing", "backing-off", "stopping", "finished"):
        hands.run_all(hands.await_jobset(f"{name}-a1"))
        hands.await_phase(name, "Running")
    for index, pod in enumerate(hands.create_pods(hands.await_jobset("waiting-a1"))):
        hands.refuse_pod(pod, f"no node for pod {index}")
    hands.await_condition("waiting", "Scheduled", status="False", reason="NoMatchingNodePool")
    last = hands.pods_of(hands.await_jobset("failing-a1"))[1]
    hands.exit(last, 1, message="the end of its log")
    hands.await_phase("failing", "Stopping")
    for name, code in (("backing-off", 1), ("finished", 0)):
        jobset = hands.await_jobset(f"{name}-a1")
        (pod,) = hands.pods_of(jobset)
        hands.exit(pod, code)
        hands.fail(jobset) if code else hands.complete(jobset)
    hands.await_phase("backing-off", "Restarting")
    hands.await_phase("finished", "Succeeded")
    hands.edit("stopping", stopped=True)
    hands.await_phase("stopping", "Stopping")
    eventually(lambda: "deletionTimestamp" in hands.await_jobset("stopping-a1")["metadata"])
    hands.await_phase("suspended", "Suspended")
    hands.await_condition("refused", "Accepted", status="False", reason="PodTemplateInvalid")
    hands.await_condition("taken", "Scheduled", status="False", reason="NameTaken")
    for name, reason in LAST_EVENTS.items():
        hands.await_event(name, reason)
    # Made beside the passes, for the workers that "worked-for" asks for.
    eventually(
        lambda: AUTH_SECRET in {each["metadata"]["name"] for each in hands.list(f"{hands.core}/secrets")}
    )


def test_an_operator_that_starts_over_jobs_of_all_kinds_writes_nothing(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor
) -> None:
    with run_operator(kubeconfig, settings_for(hands.namespace, backoff_seconds=3000.0)):
        make_jobs_of_all_kinds(hands)
    before = hands.list(hands.jobs)
    with run_operator(kubeconfig, settings_for(hands.namespace, backoff_seconds=3000.0)) as restarted:
        eventually(lambda: restarted.passes() >= len(UNFINISHED) - 1, told=restarted.passes)
    # That the JobSet of somebody else has gone can only be found by trying.
    assert set(restarted.writes()) <= {("POST", "jobsets.jobset.x-k8s.io")}
    assert hands.list(hands.jobs) == before


def test_looking_again_and_again_at_jobs_of_all_kinds_writes_nothing(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "PATIENCE_SECONDS", 0.05)
    for constant in ("PATIENCE_SECONDS", "PATIENCE_CAP_SECONDS"):
        monkeypatch.setattr(complaints, constant, 0.05)
    monkeypatch.setattr(nodes, "JUDGING_SECONDS", 0.05)
    monkeypatch.setattr(shared_answers, "EVENTS_SECONDS", 0.05)
    with run_operator(kubeconfig, settings_for(hands.namespace, backoff_seconds=3000.0)) as operator:
        make_jobs_of_all_kinds(hands)
        # A write is seen on the server before its answer is counted.
        sent = len(hands.list(f"{hands.core}/events"))
        eventually(lambda: operator.writes()["POST", "events"] == sent, told=operator.writes)
        eventually(lambda: ("POST", "secrets") in operator.writes(), told=operator.writes)
        passes, writes = operator.passes(), operator.writes()
        eventually(lambda: operator.passes() >= passes + 20, told=operator.passes)
        tried = ("POST", "jobsets.jobset.x-k8s.io")  # while the JobSet of somebody else is there
        assert {**operator.writes(), tried: 0} == {**writes, tried: 0}


def test_a_job_of_one_pod_takes_at_most_ten_requests(
    proxy: FaultyProxy,
    proxied: Path,
    hands: Hands,
    settings_for: SettingsFor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However long the test takes to make a pod, nobody looks for what keeps it.
    monkeypatch.setattr(observe, "PATIENCE_SECONDS", 3600.0)
    lives = 5
    operator = OperatorThread(proxied, settings_for(hands.namespace)).start()
    try:
        play(hands, [Life(hands, "first", SUCCESS)])
        for kind in ("frayjobs", "jobsets", "pods"):
            eventually(lambda kind=kind: proxy.open_watches(kind))
        eventually(lambda: {"AttemptStarted", "Succeeded"} <= {e["reason"] for e in hands.events_of("first")})
        asked = len(proxy.calls)
        play(hands, [Life(hands, f"counted-{number}", SUCCESS) for number in range(lives)])
        hands.await_events("counted-0", {"AttemptStarted", "AttemptRunning", "Succeeded"})
    finally:
        operator.stop()
    counted = Counter(call.what for call in proxy.calls[asked:] if not call.what.endswith("leases"))
    assert not [what for what in counted if what.startswith(("WATCH", "GET"))], counted
    assert counted.total() <= 10 * lives, counted
    assert counted["POST jobsets"] == lives

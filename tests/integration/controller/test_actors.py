"""FrayActors on a real API server; the test plays the StatefulSet controller, the kubelet and the members."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fray import vocabulary as words
from fray_operator import frayactors
from tests.integration.controller.actor_hands import Actors
from tests.integration.controller.conftest import SettingsFor
from tests.integration.controller.hands import NODE, Hands, Manifest, condition, eventually
from tests.integration.controller.operator_thread import OperatorThread, run_operator


@pytest.fixture
def operator(kubeconfig: Path, hands: Hands, settings_for: SettingsFor) -> Iterator[OperatorThread]:
    """The operator as it is installed, of one namespace."""
    with run_operator(kubeconfig, settings_for(hands.namespace)) as running:
        yield running


@pytest.fixture
def actors(hands: Hands, operator: OperatorThread) -> Actors:
    assert operator.alive
    return Actors(hands)


def test_a_group_is_ready_when_all_its_constructors_have_returned(actors: Actors) -> None:
    actors.submit("buffer", replicas=2)
    members = actors.await_set("buffer", replicas=2)
    guard = actors.api.get(f"{actors.hands.policies}/buffer-actor").body
    assert guard["metadata"]["ownerReferences"][0]["uid"] == actors.get("buffer")["metadata"]["uid"]
    spec = members["spec"]
    assert (spec["podManagementPolicy"], spec["updateStrategy"]["type"]) == ("Parallel", "OnDelete")
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    actors.await_condition("buffer", "Ready", "False", "MembersStarting")
    pods = [actors.start(members, index, ip=f"10.0.0.{index + 1}") for index in range(2)]
    for index, pod in enumerate(pods):
        actors.report(pod, "buffer", startNumber="1")
        actors.set_ready(pod, ready=True, ip=f"10.0.0.{index + 1}")
    status = actors.await_condition("buffer", "Ready", "True", "AllMembersReady")
    assert (status["ready"], status["restarts"], status["replicas"]) == ("2/2", 0, 2)
    status = actors.await_status("buffer", lambda told: told["members"][1]["startNumber"] == 1)
    assert [(member["index"], member["pod"], member["address"]) for member in status["members"]] == [
        (0, "buffer-0", "10.0.0.1"),
        (1, "buffer-1", "10.0.0.2"),
    ]
    # By its selector an autoscaler finds the pods, and no others.
    found = actors.api.get(f"{actors.hands.core}/pods", labelSelector=status["selector"]).body["items"]
    assert {pod["metadata"]["uid"] for pod in found} == {pod["metadata"]["uid"] for pod in pods}
    scale = {"spec": {"replicas": 3}}
    assert actors.api.merge(f"{actors.path}/buffer/scale", scale).ok
    actors.await_set("buffer", replicas=3)
    actors.await_status("buffer", lambda told: told["ready"] == "2/3")


def make_slice(actors: Actors, name: str) -> tuple[Manifest, list[Manifest]]:
    """Make the pods of a member's JobSet, ready on both hosts."""
    jobset = actors.hands.await_jobset(name)
    pods = actors.hands.create_pods(jobset)
    for host, pod in enumerate(pods):
        actors.hands.bind(pod)
        actors.set_ready(pod, ready=True, ip=f"10.0.0.{host + 1}")
    return jobset, actors.hands.pods_of(jobset)


def await_deletion(actors: Actors, jobset: Manifest) -> Manifest:
    path = f"{actors.hands.jobsets}/{jobset['metadata']['name']}"

    def find() -> Manifest | None:
        found = actors.api.get(path).body
        return found if "deletionTimestamp" in found["metadata"] else None

    going: Manifest = eventually(find, told=lambda: actors.api.get(path).body)
    return going


def test_a_member_on_several_hosts_has_a_jobset_and_another_only_when_its_pods_are_gone(
    actors: Actors,
) -> None:
    actors.submit("scorer", resources={"tpu": {"type": "v5p-16"}}, maxRestarts=1)
    jobset, pods = make_slice(actors, "scorer-0-a1")
    assert len(pods) == 2
    assert jobset["metadata"]["ownerReferences"][0]["uid"] == actors.get("scorer")["metadata"]["uid"]
    status = actors.await_condition("scorer", "Ready", "True", "AllMembersReady")
    (member,) = status["members"]
    assert (member["pod"], member["address"]) == (pods[0]["metadata"]["name"], "10.0.0.1")
    assert (status["ready"], status["replicas"], status["restarts"]) == ("1/1", 1, 0)
    assert actors.api.get(actors.sets).body["items"] == []
    # The second host is lost: the first one's program ends, and so the Job and the JobSet.
    actors.hands.fail(jobset, pods[1:])
    going = await_deletion(actors, jobset)
    assert actors.await_status("scorer", lambda told: told["members"][0]["attempt"] == 2)
    actors.hands.finish_deletion(going, [])
    # One that has outlived its JobSet, as where that was deleted in the background.
    actors.await_status("scorer", lambda told: told["ready"] == "0/1")
    assert len(actors.hands.list(actors.hands.jobsets)) == 0
    actors.hands.delete_pod(pods[0])
    second, pods = make_slice(actors, "scorer-0-a2")
    status = actors.await_condition("scorer", "Ready", "True", "AllMembersReady")
    assert (status["restarts"], len(pods)) == (1, 2)
    actors.hands.fail(second)
    actors.hands.finish_deletion(await_deletion(actors, second))
    status = actors.await_condition("scorer", "Ready", "False", "MemberFailed")
    assert status["members"][0]["failed"]
    eventually(lambda: actors.hands.list(actors.hands.jobsets) == [])


def test_a_slice_that_ended_starts_again_after_a_pause_or_when_its_actor_is_resumed(
    kubeconfig: Path, hands: Hands, settings_for: SettingsFor
) -> None:
    actors = Actors(hands)
    settings = settings_for(hands.namespace, backoff_seconds=3000.0, backoff_cap_seconds=3000.0)
    with run_operator(kubeconfig, settings):
        actors.submit("scorer", resources={"tpu": {"type": "v5p-16"}})
        jobset, pods = make_slice(actors, "scorer-0-a1")
        actors.await_condition("scorer", "Ready", "True", "AllMembersReady")
        hands.fail(jobset, pods)
        hands.finish_deletion(await_deletion(actors, jobset))
        # Nothing is left of it, and still it waits.
        status = actors.await_status("scorer", lambda told: told["replicas"] == 0)
        (member,) = status["members"]
        assert (member["attempt"], member["endsInARow"]) == (2, 1)
        assert f"attempt 2 starts at {member['startAfter']}" in member["message"]
        assert member["message"] in condition({"status": status}, "Ready")["message"]
        assert hands.list(hands.jobsets) == []
        actors.edit("scorer", suspend=True)
        actors.await_condition("scorer", "Suspended", "True", "Suspended")
        actors.edit("scorer", suspend=False)
        make_slice(actors, "scorer-0-a2")
        (member,) = actors.await_condition("scorer", "Ready", "True", "AllMembersReady")["members"]
        assert "startAfter" not in member


def test_a_suspended_actor_on_several_hosts_has_no_jobset_and_a_stopped_one_ends_without(
    actors: Actors,
) -> None:
    actors.submit("scorer", resources={"tpu": {"type": "v5p-16"}}, replicas=2)
    for index in range(2):
        make_slice(actors, f"scorer-{index}-a1")
    actors.await_condition("scorer", "Ready", "True", "AllMembersReady")
    assert actors.api.merge(f"{actors.path}/scorer/scale", {"spec": {"replicas": 1}}).ok
    actors.hands.finish_deletion(await_deletion(actors, actors.hands.await_jobset("scorer-1-a1")))
    actors.await_status("scorer", lambda told: told["ready"] == "1/1")
    actors.edit("scorer", suspend=True)
    actors.hands.finish_deletion(await_deletion(actors, actors.hands.await_jobset("scorer-0-a1")))
    actors.await_condition("scorer", "Suspended", "True", "Suspended")
    actors.edit("scorer", suspend=False)
    jobset, _ = make_slice(actors, "scorer-0-a2")
    actors.edit("scorer", stopped=True)
    going = await_deletion(actors, jobset)
    assert condition(actors.get("scorer"), "Finished")["status"] == "False"
    actors.hands.finish_deletion(going)
    actors.await_condition("scorer", "Finished", "True", "StopRequested")


def test_what_a_process_hosts_has_no_pods_and_ends_with_the_pod_of_that_process(actors: Actors) -> None:
    host = actors.make_pod("coordinator-0")
    hosted = {"pod": "coordinator-0", "podUid": host["metadata"]["uid"], "server": "0123456789abcdef"}
    actors.submit("counter", entrypoint={"hosted": hosted})
    actors.await_condition("counter", "Ready", "False", "MembersStarting")
    told = {"podUid": hosted["podUid"], "startNumber": "1", "ready": "true"}
    record = {"metadata": {"name": "counter-0", "labels": {words.LABEL_ACTOR: "counter"}}, "data": told}
    assert actors.api.post(f"{actors.hands.core}/configmaps", record).ok
    status = actors.await_condition("counter", "Ready", "True", "AllMembersReady")
    assert (status["ready"], status["members"][0]["pod"]) == ("1/1", "coordinator-0")
    assert actors.api.get(actors.sets).body["items"] == []
    answer = actors.api.merge(f"{actors.path}/counter/scale", {"spec": {"replicas": 2}})
    assert answer.status == 422, answer.body
    actors.hands.delete_pod(host)
    status = actors.await_condition("counter", "Finished", "True", "HostEnded")
    assert status["ready"] == "0/1"


def test_a_second_pod_of_a_member_is_told_until_it_is_gone(actors: Actors) -> None:
    actors.submit("counter")
    actors.start(actors.await_set("counter", replicas=1), 0, ip="10.0.0.1")
    labels = {
        words.LABEL_ACTOR: "counter",
        words.LABEL_ACTOR_UID: actors.get("counter")["metadata"]["uid"],
        words.LABEL_POD_INDEX: "0",
    }
    other = actors.make_pod("counter-copy", **labels)
    status = actors.await_condition("counter", "MultiplePods", "True", "MoreThanOnePod")
    assert "counter-copy" in condition({"status": status}, "MultiplePods")["message"]
    actors.hands.delete_pod(other)
    actors.await_condition("counter", "MultiplePods", "False", "OnePodEach")


def test_restarts_in_a_pod_and_lost_pods_are_counted_and_the_error_is_told(actors: Actors) -> None:
    actors.submit("counter")
    members = actors.await_set("counter", replicas=1)
    pod = actors.start(members, 0, ip="10.0.0.1")
    actors.report(pod, "counter", startNumber="1")
    actors.await_status("counter", lambda told: told["members"][0].get("startNumber") == 1)
    error = {"type": "ValueError", "message": "no \x1b[31mroom", "traceback": "Traceback\n  a line\n"}
    actors.report(pod, "counter", startNumber="3", restarts="2", lastError=json.dumps(error))
    status = actors.await_status("counter", lambda told: told["restarts"] == 2)
    member = status["members"][0]
    assert member["lastError"] == {**error, "message": "no room"}
    actors.await_condition("counter", "Ready", "False", "MemberFailed")
    actors.hands.delete_pod(pod)
    gone = actors.await_status("counter", lambda told: "pod" not in told["members"][0])
    assert gone["members"][0]["podUid"] == pod["metadata"]["uid"]
    other = actors.start(members, 0, ip="10.0.0.2")
    uid = other["metadata"]["uid"]
    status = actors.await_status("counter", lambda told: told["members"][0].get("podUid") == uid)
    # What the pod before reported isn't taken for this one's.
    assert status["members"][0]["startNumber"] == 0
    actors.report(other, "counter", startNumber="1", restarts="3", exhausted="true")
    actors.await_status("counter", lambda told: told["members"][0]["failed"])
    assert actors.get("counter")["status"]["restarts"] == 3


def test_later_pods_keep_off_a_node_on_which_two_have_failed_because_it_is_broken(actors: Actors) -> None:
    actors.submit("counter", lifetime="detached")
    members = actors.await_set("counter", replicas=1)
    uid = members["metadata"]["uid"]
    for met in (1, 2):
        refused = actors.place(members, 0)
        why = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}
        assert actors.api.merge(f"{actors.hands.core}/pods/counter-0/status", {"status": why}).ok
        actors.hands.delete_pod(refused)  # at once, as the StatefulSet controller does
        if met == 1:
            status = actors.await_status("counter", lambda told: len(told.get("nodeFaults", ())) == 1)
            assert status["avoidedNodes"] == []
    status = actors.await_status("counter", lambda told: told.get("avoidedNodes"))
    assert [entry["node"] for entry in status["avoidedNodes"]] == [NODE]

    def is_kept_off() -> bool:
        found = actors.api.get(f"{actors.sets}/counter").body
        assert found["metadata"]["uid"] == uid
        rule = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [NODE]}
        terms = (found["spec"]["template"]["spec"].get("affinity") or {}).get("nodeAffinity", {})
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
        return any(rule in term["matchExpressions"] for term in required["nodeSelectorTerms"])

    eventually(is_kept_off, told=lambda: actors.api.get(f"{actors.sets}/counter").body)


def test_a_suspended_actor_has_no_pods_and_a_stopped_one_ends_when_they_are_gone(actors: Actors) -> None:
    actors.submit("counter")
    members = actors.await_set("counter", replicas=1)
    actors.edit("counter", suspend=True)
    actors.await_set("counter", replicas=0)
    actors.await_condition("counter", "Suspended", "True", "Suspended")
    actors.edit("counter", suspend=False)
    members = actors.await_set("counter", replicas=1)
    actors.await_condition("counter", "Suspended", "False", "InProgress")
    pod = actors.start(members, 0, ip="10.0.0.1")
    actors.edit("counter", stopped=True, ttlSecondsAfterFinished=0)
    path = f"{actors.sets}/counter"
    eventually(lambda: "deletionTimestamp" in actors.api.get(path).body["metadata"])
    assert condition(actors.get("counter"), "Finished")["status"] == "False"
    actors.hands.delete_pod(pod)
    assert actors.api.merge(path, {"metadata": {"finalizers": None}}).ok
    # In the foreground, so it is there until what it owns is gone.
    eventually(lambda: "deletionTimestamp" in actors.get("counter")["metadata"])
    ended = actors.get("counter")["status"]
    finished = condition({"status": ended}, "Finished")
    assert (finished["status"], finished["reason"]) == ("True", "StopRequested")
    assert ended["completionTime"]


def test_a_group_ends_with_a_reason_once_all_its_members_are_idle(actors: Actors) -> None:
    actors.submit("buffer", replicas=2, idleSeconds=60)
    members = actors.await_set("buffer", replicas=2)
    pods = [actors.start(members, index, ip=f"10.0.0.{index}") for index in range(2)]
    for index, pod in enumerate(pods):
        actors.report(pod, "buffer", startNumber="1", idle=str(index == 0).lower())
        actors.set_ready(pod, ready=True, ip=f"10.0.0.{index}")
    actors.await_condition("buffer", "Ready", "True", "AllMembersReady")
    actors.report(pods[1], "buffer", startNumber="1", idle="true")
    actors.await_condition("buffer", "Ready", "False", "Idle")
    # A member that is called meanwhile changes nothing any more.
    actors.report(pods[1], "buffer", startNumber="1", idle="false")
    set_path = f"{actors.sets}/buffer"
    eventually(lambda: "deletionTimestamp" in actors.api.get(set_path).body["metadata"])
    for pod in pods:
        actors.hands.delete_pod(pod)
    assert actors.api.merge(set_path, {"metadata": {"finalizers": None}}).ok
    told = actors.await_condition("buffer", "Finished", "True", "Idle")
    assert "no member was called for 60 s" in condition({"status": told}, "Finished")["message"]


def test_an_actor_of_a_job_ends_with_it_and_a_detached_one_does_not(actors: Actors) -> None:
    job = actors.hands.submit("train")
    actors.submit("own", lifetime="job", rootJob="train", owner=job)
    actors.submit("shared")
    # One of a job of this name that is gone by now.
    late = {**job, "metadata": {**job["metadata"], "uid": "00000000-0000-0000-0000-000000000000"}}
    actors.submit("stale", lifetime="job", rootJob="train", owner=late)
    actors.await_condition("stale", "Finished", "True", "RootJobEnded")
    actors.await_set("own", replicas=1)
    actors.await_set("shared", replicas=1)
    jobset = actors.hands.await_jobset("train-a1")
    actors.hands.edit("train", stopped=True)
    eventually(lambda: "deletionTimestamp" in actors.hands.await_jobset("train-a1")["metadata"])
    actors.hands.finish_deletion(actors.hands.await_jobset("train-a1"))
    assert jobset
    actors.hands.await_phase("train", "Stopped")
    path = f"{actors.sets}/own"
    eventually(lambda: "deletionTimestamp" in actors.api.get(path).body["metadata"])
    assert actors.api.merge(path, {"metadata": {"finalizers": None}}).ok
    actors.await_condition("own", "Finished", "True", "RootJobEnded")
    assert condition(actors.get("shared"), "Finished")["status"] == "False"
    assert "deletionTimestamp" not in actors.api.get(f"{actors.sets}/shared").body["metadata"]


def test_an_actor_is_suspended_and_resumed_with_its_root_job(
    actors: Actors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frayactors, "ROOT_SECONDS", 0.1)
    job = actors.hands.submit("train", suspend=True)
    actors.submit("own", lifetime="job", rootJob="train", owner=job)
    actors.submit("shared")
    status = actors.await_condition("own", "Suspended", "True", "Suspended")
    assert condition({"status": status}, "Ready")["reason"] == "Suspended"
    actors.await_set("shared", replicas=1)
    assert not actors.api.get(f"{actors.sets}/own").ok
    actors.hands.edit("train", suspend=False)
    members = actors.await_set("own", replicas=1)
    actors.hands.edit("train", suspend=True)
    suspended = actors.await_set("own", replicas=0)
    actors.await_condition("own", "Suspended", "True", "Suspended")
    actors.hands.edit("train", suspend=False)
    resumed = actors.await_set("own", replicas=1)
    actors.await_condition("own", "Suspended", "False", "InProgress")
    assert len({each["metadata"]["uid"] for each in (members, suspended, resumed)}) == 1
    # Its own field is the user's.
    assert not actors.get("own")["spec"].get("suspend")
    assert condition(actors.get("shared"), "Suspended") == {}
    assert actors.api.get(f"{actors.sets}/shared").body["spec"]["replicas"] == 1


def test_an_actor_whose_creator_died_before_its_payload_ends_with_a_reason(actors: Actors) -> None:
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    payload = {"secretName": "counter-payload", "sha256": digest, "python": "3.11"}
    actors.submit("counter", entrypoint={"callable": payload})
    pod = actors.place(actors.await_set("counter", replicas=1), 0)
    actors.hold(pod, 'MountVolume.SetUp failed for volume "payload" : secret "counter-payload" not found')
    actors.await_condition("counter", "Ready", "False", "PayloadMissing")
    path = f"{actors.sets}/counter"
    eventually(lambda: "deletionTimestamp" in actors.api.get(path).body["metadata"])
    actors.hands.delete_pod(pod)
    assert actors.api.merge(path, {"metadata": {"finalizers": None}}).ok
    status = actors.await_condition("counter", "Finished", "True", "PayloadMissing")
    assert "counter-payload was never written" in condition({"status": status}, "Finished")["message"]


def test_an_actor_says_why_its_pods_can_not_be_made(actors: Actors) -> None:
    actors.submit("counter")
    members = actors.await_set("counter", replicas=1)
    actors.report_create_failure(
        members, 'create Pod counter-0 failed error: pods "counter-0" is forbidden: no'
    )
    # No event of what is watched brings the pass that finds it.
    status = actors.await_status("counter", lambda told: told["members"][0].get("message"))
    refused = (
        "the cluster refused to create it (pods): create Pod counter-0 failed error: a pod is forbidden: no"
    )
    assert status["members"][0]["message"] == refused
    told = condition({"status": status}, "Ready")
    assert (told["reason"], told["message"]) == (
        "MembersStarting",
        f"0 of 1 members take calls; member 0: {refused}",
    )
    pod = actors.start(members, 0, ip="10.0.0.1")
    actors.set_ready(pod, ready=True, ip="10.0.0.1")
    status = actors.await_condition("counter", "Ready", "True", "AllMembersReady")
    assert "message" not in status["members"][0]


def test_a_foreign_set_of_the_name_is_told_and_left_alone(actors: Actors) -> None:
    labels = {"app": "theirs"}
    body = {
        "metadata": {"name": "counter"},
        "spec": {
            "serviceName": "",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "a", "image": "b"}]},
            },
        },
    }
    theirs = actors.api.post(actors.sets, body)
    assert theirs.status == 201, theirs.body
    actors.submit("counter")
    actors.await_condition("counter", "Accepted", "False", "NameTaken")
    found = actors.api.get(f"{actors.sets}/counter").body
    assert found["metadata"]["resourceVersion"] == theirs.body["metadata"]["resourceVersion"]
    # Nothing is refused that isn't asked for.
    actors.edit("counter", suspend=True)
    actors.await_condition("counter", "Accepted", "True", "Valid")
    actors.edit("counter", suspend=False)
    actors.await_condition("counter", "Accepted", "False", "NameTaken")
    assert actors.api.delete(f"{actors.sets}/counter").ok
    actors.await_condition("counter", "Accepted", "True", "Valid")
    actors.await_set("counter", replicas=1)


def test_a_member_whose_jobset_is_refused_keeps_no_other_one(actors: Actors) -> None:
    actors.submit("model", resources={"tpu": {"type": "v5p-16"}})
    theirs = actors.hands.await_jobset("model-0-a1")
    spec = {key: theirs["spec"][key] for key in ("replicatedJobs",)}
    body = {**theirs, "metadata": {"name": "scorer-0-a1"}, "spec": spec}
    body.pop("status", None)
    made = actors.api.post(actors.hands.jobsets, body)
    assert made.ok, made.body
    actors.submit("scorer", resources={"tpu": {"type": "v5p-16"}}, replicas=2)
    actors.hands.await_jobset("scorer-1-a1")
    actors.await_condition("scorer", "Accepted", "False", "NameTaken")
    assert actors.api.delete(f"{actors.hands.jobsets}/scorer-0-a1").ok
    actors.await_condition("scorer", "Accepted", "True", "Valid")
    eventually(lambda: "ownerReferences" in actors.hands.await_jobset("scorer-0-a1")["metadata"])


def test_an_actor_begins_once_what_is_left_of_an_earlier_one_of_its_name_is_gone(actors: Actors) -> None:
    actors.submit("counter")
    left = actors.await_set("counter", replicas=1)
    assert actors.api.delete(f"{actors.path}/counter").ok
    second = actors.submit("counter")
    # Nobody collects here what the first one owned.
    status = actors.await_condition("counter", "Accepted", "False", "NameTaken")
    assert "is an earlier actor's of this name" in condition({"status": status}, "Accepted")["message"]
    assert actors.api.delete(f"{actors.hands.policies}/counter-actor").ok
    assert actors.api.delete(f"{actors.sets}/counter").ok

    def is_new() -> bool:
        found = actors.api.get(f"{actors.sets}/counter")
        return found.ok and found.body["metadata"]["uid"] != left["metadata"]["uid"]

    eventually(is_new)
    owner = actors.api.get(f"{actors.sets}/counter").body["metadata"]["ownerReferences"][0]
    assert owner["uid"] == second["metadata"]["uid"]


def test_the_keys_are_there_before_the_pods_need_them(actors: Actors) -> None:
    actors.submit("counter")
    path = f"{actors.hands.core}/secrets/{words.AUTH_SECRET}"
    eventually(lambda: actors.api.get(path).ok)
    pod = actors.await_set("counter", replicas=1)["spec"]["template"]["spec"]
    assert {"secretName": words.AUTH_SECRET, "defaultMode": 0o444} in [
        volume.get("secret") for volume in pod["volumes"]
    ]

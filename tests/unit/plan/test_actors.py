"""What a FrayActor becomes: its StatefulSet, its status, and the next step."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fray.plan.actor_lifecycle import (
    ActorDecision,
    ActorObservation,
    CreateMembers,
    RebuildMembers,
    RemoveMembers,
    RootState,
    ScaleMembers,
    decide_actor,
    read_root,
)
from fray.plan.actor_set import build_actor_set, build_actor_slice, name_avoided
from fray.plan.complaints import Complaint
from fray.plan.settings import PlanSettings, RetryPolicy
from fray.plan.timestamps import format_time
from fray.vocabulary import ANNOTATION_AVOIDED, LABEL_POD_INDEX
from fray.wire.frayactor import FrayActor, FrayActorStatus

NOW = datetime(2026, 1, 2, tzinfo=UTC)
POLICY = RetryPolicy(avoid_seconds=0.0)
SHA = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
SPOT = "cloud.google.com/gke-spot"
SPOT_TOLERATION = {"key": SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"}
OFF_SPOT = {"key": SPOT, "operator": "NotIn", "values": ["true"]}
CALLABLE = {"secretName": "payload", "sha256": SHA, "python": "3.11"}


def actor(status: FrayActorStatus | None = None, **spec: Any) -> FrayActor:
    found = FrayActor.from_manifest(
        {
            "metadata": {"name": "counter", "namespace": "team", "uid": "u1", "generation": 1},
            "spec": {"name": "team/counter", "entrypoint": {"class": "app:Counter"}, **spec},
        }
    )
    return found.model_copy(update={"status": status or FrayActorStatus()})


def decide(
    found: FrayActor,
    observed: ActorObservation,
    *,
    now: datetime = NOW,
    policy: RetryPolicy = POLICY,
) -> ActorDecision:
    return decide_actor(found, observed, now=now, policy=policy)


def members(replicas: int) -> dict[str, Any]:
    metadata = {"name": "counter", "uid": "s1", "creationTimestamp": format_time(NOW - timedelta(hours=2))}
    return {"metadata": metadata, "spec": {"replicas": replicas}}


def pod(index: int, uid: str, *, ready: bool = False, **metadata: Any) -> dict[str, Any]:
    told = {"type": "Ready", "status": str(ready)}
    return {
        "metadata": {
            "name": f"counter-{index}",
            "uid": uid,
            "creationTimestamp": format_time(NOW - timedelta(hours=1)),
            "labels": {LABEL_POD_INDEX: str(index)},
            **metadata,
        },
        "status": {"podIP": f"10.0.0.{index}", "conditions": [told]},
    }


def report(index: int, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": f"counter-{index}"}, "data": data}


def variables(found: FrayActor) -> dict[str, Any]:
    container = build_actor_set(found, replicas=1, settings=PlanSettings())["spec"]["template"]["spec"][
        "containers"
    ][0]
    return {entry["name"]: entry.get("value") for entry in container["env"]}


def test_a_member_is_told_who_it_is_and_what_to_run() -> None:
    told = variables(actor(maxRestarts=3, lifetime="job", rootJob="train"))
    assert told["FRAY_ACTOR_NAME"] == "counter"
    assert told["FRAY_ACTOR_LABEL"] == "team/counter"
    assert told["FRAY_ACTOR_UID"] == "u1"
    assert told["FRAY_ACTOR_CLASS"] == "app:Counter"
    assert told["FRAY_ACTOR_MAX_RESTARTS"] == "3"
    assert told["FRAY_ROOT_JOB"] == "train"
    assert "FRAY_ACTOR_MAX_CONCURRENCY" not in told
    assert "FRAY_ACTOR_IDLE_SECONDS" not in told
    assert variables(actor(idleSeconds=60))["FRAY_ACTOR_IDLE_SECONDS"] == "60"
    assert "FRAY_JOB_NAME" not in told


def test_a_member_that_is_restarted_without_limit_is_told_no_number() -> None:
    assert "FRAY_ACTOR_MAX_RESTARTS" not in variables(actor(maxRestarts=-1))
    assert variables(actor(maxRestarts=0))["FRAY_ACTOR_MAX_RESTARTS"] == "0"


def test_a_pickled_class_is_mounted_where_the_member_looks_for_it() -> None:
    found = actor(entrypoint={"callable": CALLABLE})
    told = variables(found)
    pod_spec = build_actor_set(found, replicas=1, settings=PlanSettings())["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod_spec["containers"][0]["volumeMounts"]}
    assert told["FRAY_ACTOR_PAYLOAD"] == mounts["payload"]
    assert told["FRAY_ACTOR_PAYLOAD_SHA256"] == SHA
    assert pod_spec["containers"][0]["command"][-1] == "fray.runtime.actors.pod"
    assert "FRAY_ACTOR_CLASS" not in told


def build_pods(found: FrayActor, *, on_several_hosts: bool = False) -> dict[str, Any]:
    """Return the spec of an actor's pods."""
    if on_several_hosts:
        jobset = build_actor_slice(found, index=0, attempt=1, settings=PlanSettings())
        (hosts,) = jobset["spec"]["replicatedJobs"]
        spec = hosts["template"]["spec"]
    else:
        spec = build_actor_set(found, replicas=1, settings=PlanSettings())["spec"]
    pods: dict[str, Any] = spec["template"]["spec"]
    return pods


def required_labels(pods: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rules for nodes' labels that pods with this spec need."""
    affinity = pods.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
    return [rule for term in required["nodeSelectorTerms"] for rule in term["matchExpressions"]]


@pytest.mark.parametrize(
    ("placement", "selected", "tolerated", "kept_off"),
    [
        ({}, None, True, False),
        ({"preemptible": True}, None, True, False),
        ({"preemptible": False}, None, False, True),
        ({"spot": "Required"}, "true", True, False),
    ],
)
@pytest.mark.parametrize("on_several_hosts", [False, True])
def test_members_run_on_spot_nodes_as_their_placement_says(
    placement: dict[str, Any],
    selected: str | None,
    *,
    tolerated: bool,
    kept_off: bool,
    on_several_hosts: bool,
) -> None:
    resources = {"tpu": {"type": "v5p-16"}} if on_several_hosts else {}
    found = actor(placement=placement, resources=resources)
    pods = build_pods(found, on_several_hosts=on_several_hosts)
    assert pods.get("nodeSelector", {}).get(SPOT) == selected
    assert (SPOT_TOLERATION in pods.get("tolerations", [])) is tolerated
    assert (OFF_SPOT in required_labels(pods)) is kept_off


@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        ({}, {}),
        ({"cpu": "500m"}, {"cpu": "500m"}),
        (
            {"cpu": "2", "memory": "4Gi", "disk": "10Gi"},
            {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi"},
        ),
    ],
)
def test_a_member_asks_for_what_its_spec_names_and_for_no_more(
    resources: dict[str, str], requests: dict[str, str]
) -> None:
    container = build_pods(actor(resources=resources))["containers"][0]
    assert container.get("resources", {}) == ({"requests": requests} if requests else {})


def test_a_member_has_the_image_the_variables_and_the_account_of_its_spec() -> None:
    environment = {"image": "example.org/app:1", "env": [{"name": "SEED", "value": "7"}]}
    pods = build_pods(actor(environment=environment, serviceAccountName="trainer"))
    assert pods["serviceAccountName"] == "trainer"
    assert pods["containers"][0]["image"] == "example.org/app:1"
    assert {"name": "SEED", "value": "7"} in pods["containers"][0]["env"]


def test_its_pods_are_no_pods_of_a_job() -> None:
    manifest = build_actor_set(actor(), replicas=2, settings=PlanSettings())
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert manifest["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert not [label for label in labels if label.startswith("fray.dev/job")]


@pytest.mark.parametrize(
    ("spec", "observed", "action"),
    [
        ({}, ActorObservation(), CreateMembers(1)),
        ({"replicas": 0}, ActorObservation(), None),
        ({"suspend": True}, ActorObservation(), None),
        ({"replicas": 3}, ActorObservation(members=members(3)), None),
        ({"replicas": 3}, ActorObservation(members=members(1)), ScaleMembers(3)),
        ({"suspend": True}, ActorObservation(members=members(1)), ScaleMembers(0)),
        ({}, ActorObservation(members=members(1), root=RootState(suspended=True)), ScaleMembers(0)),
        ({"stopped": True}, ActorObservation(members=members(1)), RemoveMembers()),
        ({"stopped": True, "suspend": True}, ActorObservation(members=members(0)), RemoveMembers()),
        ({"stopped": True}, ActorObservation(), None),
        ({}, ActorObservation(members=members(1), root=RootState(end="gone")), RemoveMembers()),
    ],
)
def test_the_next_step(spec: dict[str, Any], observed: ActorObservation, action: object) -> None:
    assert decide(actor(**spec), observed).action == action


def test_nothing_is_done_while_the_set_is_being_deleted() -> None:
    going = members(1)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert decide(actor(), ActorObservation(members=going)).action is None


def test_it_has_not_finished_while_a_pod_is_left() -> None:
    left = ActorObservation(pods=[pod(0, "p1", deletionTimestamp="2026-01-01T00:00:00Z")])
    assert decide(actor(stopped=True), left).status.completion_time is None
    ended = decide(actor(stopped=True), ActorObservation()).status
    assert ended.completion_time == "2026-01-02T00:00:00.000Z"


def test_restarts_are_those_that_the_present_pod_reports_and_never_fewer_than_before() -> None:
    steps = [
        ([], 0),
        ([pod(0, "p1")], 0),
        ([pod(0, "p1"), report(0, podUid="p1", restarts="0")], 0),
        ([pod(0, "p1"), report(0, podUid="p1", restarts="2")], 2),
        ([report(0, podUid="p1", restarts="2")], 2),
        # What another pod reports, maybe that of an earlier actor of this name, counts for nothing.
        ([pod(0, "p2"), report(0, podUid="p0", restarts="7")], 2),
        ([pod(0, "p2"), report(0, podUid="p2", restarts="3")], 3),
        # A report that went back, or that nobody can read, takes nothing away.
        ([pod(0, "p2"), report(0, podUid="p2", restarts="1")], 3),
        ([pod(0, "p2"), report(0, podUid="p2", restarts="-9" * 99)], 3),
    ]
    status = FrayActorStatus()
    for found, restarts in steps:
        observed = ActorObservation(
            members=members(1),
            pods=[each for each in found if "status" in each],
            reports=[each for each in found if "data" in each],
        )
        status = decide(actor(status), observed).status
        assert status.restarts == restarts, found


@pytest.mark.parametrize("text", ["", "{", "[]", '{"type": 3}', "[" * 100_000, "null"])
def test_an_error_that_can_not_be_read_is_none(text: str) -> None:
    observed = ActorObservation(members(1), [pod(0, "p1")], [report(0, podUid="p1", lastError=text)])
    assert decide(actor(), observed).status.members[0].last_error is None


def test_the_largest_group_with_the_longest_errors_fits_into_an_object() -> None:
    error = json.dumps({"type": "E" * 9999, "message": "m" * 9999, "traceback": "\u00e9" * 99999})
    pods = [pod(index, f"p{index}") for index in range(256)]
    reports = [report(index, podUid=f"p{index}", startNumber="2", lastError=error) for index in range(256)]
    found = decide(actor(replicas=256), ActorObservation(members(256), pods, reports)).status
    assert len(json.dumps(found.to_manifest(), ensure_ascii=False).encode()) < 1_200_000


def complaint(uid: str, first: float, what: str = 'secret "payload" not found') -> Complaint:
    """Return what the kubelet says since so many seconds ago, and said last just now."""
    message = f'MountVolume.SetUp failed for volume "payload" : {what}'
    return Complaint("Pod", "", uid, message, NOW - timedelta(seconds=first), NOW)


def held(uid: str) -> dict[str, Any]:
    """Return a pod that has begun nothing for minutes."""
    found = pod(0, uid)
    found["status"] |= {"phase": "Pending", "startTime": format_time(NOW - timedelta(minutes=5))}
    return found


@pytest.mark.parametrize(
    ("told", "ends"),
    [
        (complaint("p1", 61), True),
        (complaint("p1", 59), False),
        (complaint("p0", 61), False),
        (complaint("p1", 61, "timed out waiting for the condition"), False),
    ],
)
def test_an_actor_ends_whose_payload_never_comes(told: Complaint, *, ends: bool) -> None:
    observed = ActorObservation(members(1), [held("p1")], complaints=[told])
    found = actor(entrypoint={"callable": CALLABLE})
    decision = decide(found, observed)
    assert isinstance(decision.action, RemoveMembers) is ends
    if not ends:
        return
    assert decision.status.members[0].message is not None
    assert 'secret "payload" not found' in decision.status.members[0].message
    # It stays so once the pod is gone, with what complained of it.
    over = decide(found.model_copy(update={"status": decision.status}), ActorObservation(members(1)))
    assert over.action == RemoveMembers()
    over = decide(found.model_copy(update={"status": over.status}), ActorObservation())
    finished = next(each for each in over.status.conditions if each.type == "Finished")
    assert (finished.status, finished.reason) == ("True", "PayloadMissing")
    assert over.action is None


TRIED = "create Pod counter-1 in StatefulSet counter failed error: "
WHY = "is forbidden: error looking up service account team/fray-job: serviceaccount 'fray-job' not found"
NO_ACCOUNT = f'{TRIED}pods "counter-1" {WHY}'
REFUSED = f"the cluster refused to create it (pods): {TRIED}a pod {WHY}"
QUOTA = f'{TRIED}pods "counter-1" is forbidden: exceeded quota'


def refusal(message: str, *, ago: float = 1.0, kind: str = "StatefulSet", uid: str = "s1") -> Complaint:
    """Return what a controller said so many seconds ago of a pod that it could not make."""
    said = NOW - timedelta(seconds=ago)
    return Complaint(kind, "another", uid, message, said, said)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (refusal(NO_ACCOUNT), REFUSED),
        (refusal(QUOTA), "a quota of the namespace is used up"),
        (refusal(NO_ACCOUNT, uid="s0"), None),
        (refusal(NO_ACCOUNT, kind="JobSet", uid="s0"), None),
        # The StatefulSet has made a pod since.
        (refusal(NO_ACCOUNT, ago=3601), None),
    ],
)
def test_a_member_says_why_its_pod_can_not_be_made(told: Complaint, message: str | None) -> None:
    pods = [pod(0, "p1", ready=True)]
    status = decide(actor(replicas=2), ActorObservation(members(2), pods, complaints=[told])).status
    assert status.members[0].message is None
    ready = next(each for each in status.conditions if each.type == "Ready")
    if message is None:
        assert (status.members[1].message, ready.message) == (None, "1 of 2 members take calls")
        return
    assert (status.members[1].message or "").startswith(message)
    assert ready.message == f"1 of 2 members take calls; member 1: {status.members[1].message}"


@pytest.mark.parametrize(
    ("spec", "told", "reason"),
    [
        ({"idleSeconds": 9}, [{"idle": "true"}, {"idle": "true"}], "Idle"),
        ({"idleSeconds": 9}, [{"idle": "true"}, {"idle": "false"}], None),
        ({"idleSeconds": 9}, [{"idle": "true"}, {}], None),
        # One that is never started again can't be called.
        ({"idleSeconds": 9}, [{"idle": "true"}, {"exhausted": "true"}], "Idle"),
        ({"idleSeconds": 9}, [{"exhausted": "true"}, {"exhausted": "true"}], None),
        ({"idleSeconds": 9}, [{"idle": "true"}, {"ended": "done"}], "Idle"),
        ({}, [{"idle": "true"}, {"idle": "true"}], None),
        ({}, [{"ended": "done"}, {"ended": "done"}], "MembersEnded"),
        ({}, [{"ended": "done"}, {}], None),
        # What is said of a pod that is gone counts for nothing.
        ({"idleSeconds": 9}, [{"idle": "true"}, {"idle": "true", "podUid": "p0"}], None),
        ({"idleSeconds": 9, "replicas": 0}, [], None),
    ],
)
def test_an_actor_ends_that_nobody_needs(
    spec: dict[str, Any], told: list[dict[str, str]], reason: str | None
) -> None:
    pods = [pod(index, f"p{index + 1}", ready=True) for index in range(len(told))]
    reports = [report(index, **{"podUid": f"p{index + 1}", **data}) for index, data in enumerate(told)]
    found = actor(**{"replicas": len(told), **spec})
    decision = decide(found, ActorObservation(members(len(told)), pods, reports))
    if reason is None:
        assert decision.action is None
        return
    assert decision.action == RemoveMembers()
    # It stays so, whatever a member says while its pod ends, and when there is none any more.
    woken = [report(index, podUid=f"p{index + 1}", idle="false") for index in range(len(told))]
    for observed in (ActorObservation(members(len(told)), pods, woken), ActorObservation()):
        before = decision.status
        decision = decide(found.model_copy(update={"status": before}), observed)
        assert decision.action == (RemoveMembers() if observed.pods else None)
    ends = {each.type: each for each in decision.status.conditions}
    assert (ends["Finished"].status, ends["Finished"].reason) == ("True", reason)
    assert (ends["Ready"].status, ends["Ready"].reason) == ("False", reason)


LESSON = json.dumps({"type": "KeyError", "message": "lesson"})


@pytest.mark.parametrize(
    ("other", "reason", "message"),
    [
        ({"ready": "true"}, "SomeMembersEnded", "1 of 2 members take calls; member 0: it has ended itself"),
        ({}, "MembersStarting", "0 of 2 members take calls"),
        ({"lastError": LESSON}, "MemberFailed", "0 of 2 members take calls; member 1: KeyError: lesson"),
    ],
)
def test_a_member_that_has_ended_itself_is_told_while_another_lives(
    other: dict[str, str], reason: str, message: str
) -> None:
    pods = [pod(0, "p1"), pod(1, "p2", ready="ready" in other)]
    # What ended it before its last start isn't why it has ended.
    ended = report(0, podUid="p1", ended="it has ended itself", lastError=LESSON)
    observed = ActorObservation(members(2), pods, [ended, report(1, podUid="p2", **other)])
    decision = decide(actor(replicas=2), observed)
    ready = next(each for each in decision.status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason, ready.message) == ("False", reason, message)
    assert [member.ended for member in decision.status.members] == [True, False]
    # It stays so for the pod that takes the place of its own, until that one has told.
    for left in ([pods[1]], [pod(0, "p3"), pods[1]]):
        again = decide(actor(decision.status, replicas=2), ActorObservation(members(2), left))
        assert [member.ended for member in again.status.members] == [True, False]


def test_an_actor_that_has_started_once_waits_for_its_payload() -> None:
    observed = ActorObservation(members(1), [held("p2")], complaints=[complaint("p2", 300)])
    before = FrayActorStatus.model_validate({"members": [{"index": 0, "startNumber": 1}]})
    found = actor(before, entrypoint={"callable": CALLABLE})
    assert decide(found, observed).action is None


def test_a_member_says_that_its_last_pod_stands_on_a_node_that_does_not_answer() -> None:
    for seconds, told in [(30, False), (61, True)]:
        due = format_time(NOW - timedelta(seconds=seconds))
        left = pod(0, "p1", ready=True, deletionTimestamp=due) | {"spec": {"nodeName": "n1"}}
        decision = decide(actor(), ActorObservation(members(1), [left]))
        (member,) = decision.status.members
        # Whatever it says, nothing makes a second pod of the index.
        assert (decision.action, member.ready, member.pod) == (None, False, None)
        assert ("its node n1 seems not to answer" in (member.message or "")) is told


@pytest.mark.parametrize(
    ("pods", "strangers", "told"),
    [
        ([pod(0, "p1"), pod(1, "p2")], [], None),
        # A pod that nobody controls any more, and one of the same labels that somebody has made.
        ([pod(0, "p1")], [pod(0, "p0")], "member 0 has 2 pods: counter-0, counter-0;"),
        ([pod(0, "p1")], [pod(0, "p0", name="copy")], "member 0 has 2 pods: copy, counter-0;"),
        ([pod(10, "p1"), pod(2, "p2")], [pod(10, "p3"), pod(2, "p4")], "member 2 has 2 pods"),
        ([pod(0, "p1"), pod(1, "p2")], [pod(0, "p3"), pod(1, "p4")], ", and 1 more members have several;"),
        # A node that doesn't answer may run what is to end.
        ([pod(0, "p1")], [pod(0, "p0", deletionTimestamp="2026-01-01T00:00:00Z")], "member 0 has 2 pods"),
        ([pod(0, "p1", deletionTimestamp="2026-01-01T00:00:00Z")], [], None),
        # What has ended, what has no index, and what is seen twice is no second one.
        ([pod(0, "p1")], [pod(0, "p0") | {"status": {"phase": "Failed"}}], None),
        ([pod(0, "p1")], [pod(0, "p0") | {"status": {"phase": "Succeeded"}}], None),
        ([pod(0, "p1")], [pod(0, "p0", labels={})], None),
        ([pod(0, "p1")], [pod(0, "p1")], None),
        ([], [pod(0, "p0")], None),
    ],
)
def test_a_second_pod_of_a_member_is_told(
    pods: list[dict[str, Any]], strangers: list[dict[str, Any]], told: str | None
) -> None:
    observed = ActorObservation(members(1), pods, strangers=strangers)
    found = decide(actor(), observed)
    (condition,) = [each for each in found.status.conditions if each.type == "MultiplePods"] or [None]
    assert found.action is None
    if told is None:
        assert condition is None
        return
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "MoreThanOnePod")
    assert told in condition.message
    # It is said, too, that it is over.
    later = NOW + timedelta(minutes=1)
    over = decide(actor(found.status), ActorObservation(members(1), pods), now=later).status
    (condition,) = [each for each in over.conditions if each.type == "MultiplePods"]
    assert (condition.status, condition.reason) == ("False", "OnePodEach")
    assert condition.last_transition_time == format_time(later)


def test_the_node_of_a_second_pod_is_named() -> None:
    second = pod(0, "p0") | {"spec": {"nodeName": "lost"}}
    found = decide(actor(), ActorObservation(members(1), [pod(0, "p1")], strangers=[second]))
    messages = [each.message for each in found.status.conditions if each.type == "MultiplePods"]
    assert messages == [
        "member 0 has 2 pods: counter-0, counter-0 on node lost; delete all of a member's pods but one"
    ]


REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}


def refused(uid: str, node: str = "sick", **status: Any) -> dict[str, Any]:
    """A pod that the kubelet of a node with broken devices has refused."""
    found = pod(0, uid, creationTimestamp=format_time(NOW))
    return found | {"spec": {"nodeName": node}, "status": REFUSED | status}


def test_a_node_on_which_two_pods_failed_because_it_is_broken_is_avoided() -> None:
    def look(found: FrayActor, *, now: datetime = NOW, **observed: Any) -> ActorDecision:
        built = members(1)
        built["metadata"]["annotations"] = {ANNOTATION_AVOIDED: name_avoided(found.status)}
        seen = ActorObservation(members=built, **observed)
        return decide(found, seen, now=now, policy=RetryPolicy())

    one = look(actor(), pods=[refused("p1")])
    assert [(fault.node, fault.pod_uid) for fault in one.status.node_faults] == [("sick", "p1")]
    assert (one.action, one.status.avoided_nodes) == (None, [])
    # The same pod counts once, as it was last too, and a pod that was taken away tells nothing of its node.
    taken = refused(
        "p2", reason=None, message="", conditions=[{"type": "DisruptionTarget", "status": "True"}]
    )
    again = look(actor(one.status), gone=[refused("p1"), taken], pods=[refused("p3", node="other")])
    assert (again.action, again.status.avoided_nodes) == (None, [])
    two = look(actor(again.status), gone=[refused("p4")])
    assert two.action == RebuildMembers(1)
    assert [(entry.node, entry.until) for entry in two.status.avoided_nodes] == [
        ("sick", format_time(NOW + timedelta(hours=1)))
    ]
    assert [fault.node for fault in two.status.node_faults] == ["other"]
    template = build_actor_set(actor(two.status), replicas=1, settings=PlanSettings())["spec"]["template"]
    assert "'operator': 'NotIn', 'values': ['sick']" in str(template["spec"]["affinity"])
    # Then it holds, until its time is over.
    assert look(actor(two.status)).action is None
    late = look(actor(two.status), now=NOW + timedelta(hours=1))
    assert (late.action, late.status.avoided_nodes) == (RebuildMembers(1), [])


def test_the_set_is_built_anew_when_no_node_is_avoided_any_more_and_not_for_want_of_a_note() -> None:
    built = members(1)
    assert decide(actor(), ActorObservation(members=built)).action is None
    built["metadata"]["annotations"] = {ANNOTATION_AVOIDED: "sick"}
    assert decide(actor(), ActorObservation(members=built)).action == RebuildMembers(1)


def test_a_root_job_is_told_from_another_one_of_its_name() -> None:
    own = actor(lifetime="job", rootJob="train")
    owners = [{"kind": "FrayJob", "name": "train", "uid": "j1"}]
    own = own.model_copy(update={"metadata": own.metadata.model_copy(update={"owner_references": owners})})
    alive = {"metadata": {"uid": "j1"}, "spec": {"suspend": True}}
    assert read_root(own, alive) == RootState(suspended=True)
    assert read_root(own, {**alive, "metadata": {"uid": "j2"}}).end == "its root job train was deleted"
    assert read_root(own, None).end == "its root job train was deleted"
    over = {**alive, "status": {"conditions": [{"type": "Finished", "status": "True"}]}}
    assert read_root(own, over).end == "its root job train has ended"


HOSTED = {"hosted": {"pod": "train-0", "podUid": "p1", "server": "0123456789abcdef"}}


def host(**changes: Any) -> dict[str, Any]:
    """Return the pod of a process that hosts an actor."""
    found = {"metadata": {"name": "train-0", "uid": "p1"}, "spec": {"nodeName": "n1"}, "status": {}}
    return {**found, **changes}


@pytest.mark.parametrize(
    ("seen", "told", "ready"),
    [
        (host(), {"podUid": "p1", "ready": "true"}, "True"),
        (host(), {"podUid": "p1", "ready": "false"}, "False"),
        (host(), {}, "False"),
        # What another pod tells, maybe the one that hosted an earlier actor of this name.
        (host(), {"podUid": "p0", "ready": "true"}, "False"),
    ],
)
def test_a_hosted_actor_has_no_pods_and_is_as_its_process_tells(
    seen: dict[str, Any], told: dict[str, str], ready: str
) -> None:
    observed = ActorObservation(reports=[report(0, **told)], host=seen)
    decision = decide(actor(entrypoint=HOSTED), observed)
    assert decision.action is None
    conditions = {each.type: each.status for each in decision.status.conditions}
    assert (conditions["Ready"], conditions["Finished"]) == (ready, "False")
    (member,) = decision.status.members
    assert (member.pod, member.pod_uid, member.node) == ("train-0", "p1", "n1")
    assert decision.status.ready == ("1/1" if ready == "True" else "0/1")


@pytest.mark.parametrize(
    "seen",
    [
        None,
        host(metadata={"name": "train-0", "uid": "p2"}),
        host(status={"phase": "Succeeded"}),
        host(status={"phase": "Failed"}),
    ],
)
def test_a_hosted_actor_ends_with_its_pod(seen: dict[str, Any] | None) -> None:
    observed = ActorObservation(reports=[report(0, podUid="p1", ready="true")], host=seen)
    decision = decide(actor(entrypoint=HOSTED), observed)
    assert decision.action is None
    ends = {each.type: each for each in decision.status.conditions}
    assert (ends["Finished"].status, ends["Finished"].reason) == ("True", "HostEnded")
    assert (ends["Ready"].status, decision.status.members[0].ready) == ("False", False)
    assert decision.status.completion_time is not None

"""FrayActors as jobs create them: their model knows each field, and whose names are free."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from fray.errors import ActorDiedError, ActorExistsError, ActorNotFoundError, AmbiguousActorError
from fray.kube.resources import CONFIG_MAPS, FRAYACTORS, FRAYJOBS, SECRETS
from fray.payload.callables import encode_callable
from fray.runtime.actors.identity import DETACHED, Member, build_actor_name
from fray.runtime.actors.objects import ActorObjects, NewActor, build_limits, check_lives
from fray.runtime.actors.record import LastError, MemberRecord
from fray.testing import FakeCluster
from fray.vocabulary import API_VERSION
from fray.wire.frayactor import FRAYACTOR, FrayActor
from fray.wire.validation import validate_object
from tests.fake_pods import client_of_pod

JOB = {"metadata": {"name": "train", "uid": "uid-1"}, "spec": {"environment": {"image": "example.org/a:1"}}}

ENVIRONMENT = {"image": "example.org/b:2", "env": [{"name": "SEED", "value": "7"}], "pipPackages": ["jax"]}
AS_WRITTEN = [
    "train_lm/curriculum",
    "train-lm-curriculum",
    "Train_LM/Curriculum",
    " train lm curriculum ",
    "учебный план",
    "учебный_план",
    "課程",
    "e",
    "é",
    "E\u0301",
    "\n",
    "-",
    "7 lessons",
    "2024-experiment-of-the-curriculum-of-the-trainer",
    "2024-experiment-of-the-curriculum-of-the-teacher",
    "2024-experiment-of-the-curric-ulum",
    "c" * 300,
    "c" * 299 + "d",
    "9" * 300,
]


def test_names_as_users_write_them_become_legal_ones_that_all_differ() -> None:
    scopes = ("uid-1", "uid-2", DETACHED)
    names = [build_actor_name(scope, written) for scope in scopes for written in AS_WRITTEN]
    assert len(set(names)) == len(scopes) * len(AS_WRITTEN)
    for name in names:
        spec = {"name": "counter", "entrypoint": {"class": "app:Counter"}}
        body = {"apiVersion": API_VERSION, "kind": FRAYACTOR.kind, "metadata": {"name": name}, "spec": spec}
        validate_object(body, FRAYACTOR)
        # Names of some objects that have it in theirs are DNS labels, and begin with a letter.
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)


def test_a_name_is_the_same_for_all_programs_that_look_for_the_actor() -> None:
    # Those of other releases among them, so it never changes.
    assert build_actor_name(DETACHED, "train_lm/curriculum") == "train-lm-curriculum-0ac8c306a4d299b1"


@pytest.mark.parametrize("limit", [None, 0, -1, 2])
def test_a_limit_of_restarts_is_passed_on_as_it_was_given(limit: int | None) -> None:
    limits = build_limits(None, limit, None, None)
    assert limits == ({} if limit is None else {"maxRestarts": limit})


@pytest.mark.parametrize(("seconds", "told"), [(2.5, {"idleSeconds": 3}), (math.inf, {}), (None, {})])
def test_an_actor_without_a_finite_limit_is_never_idle_for_too_long(
    seconds: float | None, told: dict[str, int]
) -> None:
    assert build_limits(None, None, None, seconds) == told


class Namespace:
    """A namespace with the jobs `train` and `eval`."""

    def __init__(self, api: FakeCluster) -> None:
        self.api, self.client = api, client_of_pod(api)
        for name in ("train", "eval"):
            api.store(FRAYJOBS, {"metadata": {"name": name}, "spec": JOB["spec"]})

    def create(
        self,
        *,
        attempt: int = 1,
        job: str = "train",
        get_if_exists: bool = False,
        replicas: int = 1,
        detached: bool = True,
        root: str = "",
    ) -> Member:
        """Create the actor `counter` from an attempt of a job, which may have a root; return it."""
        payload = encode_callable(dict, (), {})
        new = NewActor("counter", payload, detached=detached, replicas=replicas)
        objects = ActorObjects(self.client, job=job, root=root or job, attempt=attempt, pause=self.pause)
        return objects.create(new, get_if_exists=get_if_exists)[0]

    def pause(self, _: float) -> None:
        """Let what is being deleted be gone, while a creator waits."""
        for each in self.api.all(FRAYACTORS):
            if "deletionTimestamp" in each["metadata"]:
                self.api.remove(FRAYACTORS, each["metadata"]["name"])

    def actor(self, member: Member) -> dict[str, Any]:
        """Return the FrayActor of a member."""
        found = self.api.find(FRAYACTORS, member.name)
        assert found is not None
        return found

    def record(self, member: Member, index: int, *, ready: bool, constructing: bool) -> None:
        """Let the pod of a member say how it fares."""
        error = LastError("ValueError", "no such table", constructing=constructing)
        told = MemberRecord(
            "p1", 1, "tcp:10.0.0.1:7000", ready=ready, error=error, failures=int(constructing and not ready)
        )
        metadata = {"name": f"{member.name}-{index}", "ownerReferences": [{"uid": member.uid}]}
        self.api.store(CONFIG_MAPS, {"metadata": metadata, "data": told.to_data()})


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with FakeCluster() as api:
        yield Namespace(api)


@pytest.mark.parametrize("detached", [True, False])
def test_each_field_of_a_created_actor_is_one_of_the_resource(
    namespace: Namespace, *, detached: bool
) -> None:
    new = NewActor(
        "lab/counter",
        encode_callable(dict, (), {}),
        detached=detached,
        max_concurrency=2,
        max_restarts=3,
        max_task_retries=2,
        resources={"cpu": "1"},
        preemptible=False,
        idle_timeout=59.5,
    )
    member, own = ActorObjects(namespace.client, job="train", root="train").create(new, get_if_exists=True)
    (body,), (secret,) = namespace.api.all(FRAYACTORS), namespace.api.all(SECRETS)
    assert (own, member.name) == (True, body["metadata"]["name"])
    actor = FrayActor.from_manifest(body)
    assert set(_paths(body["spec"])) <= set(_paths(actor.to_manifest()["spec"]))
    assert actor.spec.entrypoint.callable is not None
    assert actor.spec.entrypoint.callable.secret_name == secret["metadata"]["name"]
    assert FRAYACTOR.kind == body["kind"]


def test_a_later_job_of_the_same_name_meets_no_actor_of_the_one_before(namespace: Namespace) -> None:
    detached = namespace.create()
    first = namespace.create(detached=False)
    left = namespace.api.all(FRAYACTORS)
    namespace.api.remove(FRAYJOBS, "train")
    namespace.api.store(FRAYJOBS, {"metadata": {"name": "train"}, "spec": JOB["spec"]})
    # As if the garbage collector hadn't come so far.
    for actor in left:
        namespace.api.store(FRAYACTORS, actor)
    later = ActorObjects(namespace.client, job="train", root="train")
    assert later.find("counter").name == detached.name
    namespace.api.remove(FRAYACTORS, detached.name)
    with pytest.raises(ActorNotFoundError):
        later.find("counter")
    second = namespace.create(detached=False)
    assert {actor["metadata"]["name"] for actor in namespace.api.all(FRAYACTORS)} == {first.name, second.name}
    assert later.find("counter").uid == second.uid


def test_roots_share_detached_actors_alone(namespace: Namespace) -> None:
    own = {root: namespace.create(job=root, detached=False) for root in ("train", "eval")}
    assert own["train"].name != own["eval"].name
    shared = namespace.create(job="eval")
    for root, member in own.items():
        seen = ActorObjects(namespace.client, job=root, root=root)
        assert seen.find("counter").uid == member.uid
        namespace.api.remove(FRAYACTORS, member.name)
        assert seen.find("counter").uid == shared.uid
    assert ActorObjects(namespace.client).find("counter").uid == shared.uid


def test_an_actor_that_somebody_has_applied_is_found_by_what_its_spec_says(namespace: Namespace) -> None:
    spec = {"name": "counter", "entrypoint": {"class": "app:Counter"}}
    applied = namespace.api.store(FRAYACTORS, {"metadata": {"name": "lessons"}, "spec": spec})
    other = {**spec, "rootJob": "eval", "lifetime": "job"}
    namespace.api.store(FRAYACTORS, {"metadata": {"name": "of-another-job"}, "spec": other})
    seen = ActorObjects(namespace.client, job="train", root="train")
    found = seen.find("counter")
    assert (found.name, found.uid, found.label) == ("lessons", applied["metadata"]["uid"], "counter")
    assert namespace.create(get_if_exists=True) == found
    with pytest.raises(ActorExistsError):
        namespace.create(get_if_exists=False)
    # That of a job is found by the jobs of its tree, and first where Fray has named none.
    own = namespace.api.store(
        FRAYACTORS, {"metadata": {"name": "own"}, "spec": {**other, "rootJob": "train"}}
    )
    assert seen.find("counter").uid == own["metadata"]["uid"]
    namespace.api.store(FRAYACTORS, {"metadata": {"name": "again"}, "spec": {**other, "rootJob": "train"}})
    with pytest.raises(AmbiguousActorError, match="again, own"):
        seen.find("counter")
    # One that has ended has the name no more.
    for name in ("own", "again"):
        namespace.api.remove(FRAYACTORS, name)
    namespace.api.store(FRAYACTORS, {"metadata": {"name": "lessons"}, "spec": {**spec, "stopped": True}})
    with pytest.raises(ActorNotFoundError):
        seen.find("counter")
    assert namespace.create().name == build_actor_name(DETACHED, "counter")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"environment": ENVIRONMENT},
        {"serviceAccountName": "trainer"},
        {"environment": ENVIRONMENT, "serviceAccountName": "trainer"},
    ],
)
@pytest.mark.parametrize("detached", [True, False])
def test_an_actor_has_the_environment_and_the_account_of_the_job_that_creates_it(
    namespace: Namespace, given: dict[str, Any], *, detached: bool
) -> None:
    job = {"resources": {"cpu": "8"}, "placement": {"preemptible": False}, **given}
    namespace.api.store(FRAYJOBS, {"metadata": {"name": "rollout"}, "spec": job})
    child = ActorObjects(namespace.client, job="rollout", root="train")
    new = NewActor("counter", encode_callable(dict, (), {}), detached=detached)
    spec = namespace.actor(child.create(new, get_if_exists=False)[0])["spec"]
    own = ("name", "entrypoint", "lifetime", "replicas", "rootJob")
    assert {field: value for field, value in spec.items() if field not in own} == given


def test_what_a_process_hosts_has_the_environment_of_no_job(namespace: Namespace) -> None:
    hosted = {"pod": "train-0", "podUid": "p1", "server": "0123456789abcdef"}
    new = NewActor("counter", None, detached=True, hosted=hosted)
    made, _ = ActorObjects(namespace.client, job="train", root="train").create(new, get_if_exists=False)
    assert "environment" not in namespace.actor(made)["spec"]


def test_a_member_that_the_operator_has_given_up_is_not_waited_for(namespace: Namespace) -> None:
    error = {"type": "ValueError", "message": "host 1: no such table"}
    members = [{"index": 0, "attempt": 1}, {"index": 1, "attempt": 3, "failed": True, "lastError": error}]
    actor = {"metadata": {"name": "scorer"}, "spec": {"name": "scorer"}, "status": {"members": members}}
    uid = namespace.api.store(FRAYACTORS, actor)["metadata"]["uid"]
    check_lives(namespace.client, Member("scorer", "scorer", uid, 0))
    with pytest.raises(ActorDiedError, match="ValueError: host 1: no such table"):
        check_lives(namespace.client, Member("scorer", "scorer", uid, 1))


@pytest.mark.parametrize("get_if_exists", [True, False])
def test_the_name_of_an_actor_that_has_ended_is_free(namespace: Namespace, *, get_if_exists: bool) -> None:
    first = namespace.create()
    finished = {"type": "Finished", "status": "True", "message": "its creator died"}
    namespace.api.set_status(first.name, resource=FRAYACTORS, conditions=[finished])
    second = namespace.create(job="eval", get_if_exists=get_if_exists)
    actor = namespace.actor(second)
    actor["spec"]["stopped"] = True
    namespace.api.store(FRAYACTORS, actor)
    third = namespace.create(get_if_exists=get_if_exists)
    assert len({first.uid, second.uid, third.uid}) == 3
    assert namespace.actor(third)["metadata"]["uid"] == third.uid


def test_a_name_is_free_once_the_constructors_of_all_members_have_failed(namespace: Namespace) -> None:
    broken = namespace.create(replicas=2)
    for ready, constructing, lives in [(True, True, True), (False, False, True), (False, True, False)]:
        namespace.record(broken, 0, ready=False, constructing=True)
        namespace.record(broken, 1, ready=ready, constructing=constructing)
        found = namespace.create(get_if_exists=True)
        assert (found.uid == broken.uid) is lives


@pytest.mark.parametrize("detached", [True, False])
def test_a_later_attempt_of_its_creator_finds_an_actor_or_replaces_it(
    namespace: Namespace, *, detached: bool
) -> None:
    first = namespace.create(attempt=9, detached=detached)
    with pytest.raises(ActorExistsError):
        namespace.create(attempt=9, detached=detached)
    with pytest.raises(ActorExistsError):
        namespace.create(attempt=10, job="eval", root="train", detached=detached)
    assert namespace.create(attempt=10, get_if_exists=True, detached=detached).uid == first.uid
    check_lives(namespace.client, first)
    second = namespace.create(attempt=10, detached=detached)
    assert second.uid != first.uid
    with pytest.raises(ActorDiedError, match="it was deleted"):
        check_lives(namespace.client, first)
    # An earlier attempt that still runs takes nothing back, nor does an actor, which has no attempts.
    for attempt in (9, 0):
        with pytest.raises(ActorExistsError):
            namespace.create(attempt=attempt, detached=detached)
    assert len(namespace.api.all(SECRETS)) == 1


@pytest.mark.parametrize("get_if_exists", [True, False])
def test_nothing_is_written_to_an_actor_that_exists(namespace: Namespace, *, get_if_exists: bool) -> None:
    before = namespace.actor(namespace.create())
    with nullcontext() if get_if_exists else pytest.raises(ActorExistsError):
        namespace.create(job="eval", get_if_exists=get_if_exists, replicas=3)
    assert namespace.api.all(FRAYACTORS) == [before]
    calls = namespace.api.calls
    assert {call.method for call in calls if call.resource == FRAYACTORS} == {"POST", "GET", "LIST"}
    assert [call.method for call in calls if call.resource == SECRETS] == ["POST"]


def test_a_creator_waits_until_the_one_before_is_gone(namespace: Namespace) -> None:
    first = namespace.create()
    actor = namespace.actor(first)
    actor["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    namespace.api.store(FRAYACTORS, actor)
    second = namespace.create(get_if_exists=True)
    assert second.uid != first.uid
    assert namespace.actor(second)["metadata"]["uid"] == second.uid


def _paths(value: object, prefix: str = "") -> list[str]:
    if not isinstance(value, dict):
        return [prefix]
    return [path for key, part in value.items() for path in _paths(part, f"{prefix}.{key}")]

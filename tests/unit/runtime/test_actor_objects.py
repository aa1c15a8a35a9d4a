"""FrayActors as jobs create them: their model knows each field, and whose names are free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fray.errors import ActorDiedError, ActorExistsError
from fray.kube.resources import CONFIG_MAPS, FRAYACTORS, FRAYJOBS, SECRETS
from fray.payload.callables import encode_callable
from fray.runtime.actors.identity import Member
from fray.runtime.actors.objects import ActorObjects, NewActor, build_limits, check_lives
from fray.runtime.actors.record import LastError, MemberRecord
from fray.testing import FakeCluster
from fray.wire.frayactor import FRAYACTOR, FrayActor
from tests.fake_pods import client_of_pod

JOB = {"metadata": {"name": "train", "uid": "uid-1"}, "spec": {"environment": {"image": "example.org/a:1"}}}


@pytest.mark.parametrize("limit", [None, 0, -1, 2])
def test_a_limit_of_restarts_is_passed_on_as_it_was_given(limit: int | None) -> None:
    limits = build_limits(None, limit, None, None)
    assert limits == ({} if limit is None else {"maxRestarts": limit})


class Namespace:
    """A namespace with the jobs `train` and `eval`."""

    def __init__(self, api: FakeCluster) -> None:
        self.api, self.client = api, client_of_pod(api)
        for name in ("train", "eval"):
            api.store(FRAYJOBS, {"metadata": {"name": name}, "spec": JOB["spec"]})

    def create(
        self, *, attempt: int = 1, job: str = "train", get_if_exists: bool = False, replicas: int = 1
    ) -> Member:
        """Create the actor `counter` from an attempt of a job; return it."""
        payload = encode_callable(dict, (), {})
        new = NewActor("counter", payload, detached=True, replicas=replicas)
        objects = ActorObjects(self.client, job=job, root=job, attempt=attempt, pause=self.pause)
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


def test_a_later_attempt_of_its_creator_replaces_an_actor(namespace: Namespace) -> None:
    first = namespace.create(attempt=9)
    with pytest.raises(ActorExistsError):
        namespace.create(attempt=9)
    with pytest.raises(ActorExistsError):
        namespace.create(attempt=10, job="eval")
    assert namespace.create(attempt=10, get_if_exists=True).uid == first.uid
    second = namespace.create(attempt=10)
    assert second.uid != first.uid
    # An earlier attempt that still runs takes nothing back, nor does an actor, which has no attempts.
    for attempt in (9, 0):
        with pytest.raises(ActorExistsError):
            namespace.create(attempt=attempt)
    assert len(namespace.api.all(SECRETS)) == 1


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

"""What a job creates as a FrayActor is one: its model knows each field, as the API server must."""

from __future__ import annotations

from typing import Any

import pytest

from fray.kube.resources import Resource
from fray.payload.callables import encode_callable
from fray.runtime.actors.objects import ActorObjects, NewActor
from fray.wire.frayactor import FRAYACTOR, FrayActor

JOB = {"metadata": {"name": "train", "uid": "uid-1"}, "spec": {"environment": {"image": "example.org/a:1"}}}


class Server:
    """Has the job, and keeps what is created."""

    namespace = "default"

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []

    def get(self, *_: object, **__: object) -> dict[str, Any]:
        return JOB

    def create(self, _: Resource, body: dict[str, Any], **__: object) -> dict[str, Any]:
        self.made.append(body)
        return {**body, "metadata": {**body["metadata"], "uid": "uid-2"}}


@pytest.mark.parametrize("detached", [True, False])
def test_each_field_of_a_created_actor_is_one_of_the_resource(*, detached: bool) -> None:
    server = Server()
    new = NewActor(
        "lab/counter",
        encode_callable(dict, (), {}),
        detached=detached,
        max_concurrency=2,
        max_restarts=3,
        resources={"cpu": "1"},
        preemptible=False,
    )
    objects: Any = ActorObjects(server, job="train", root="train")  # type: ignore[arg-type]
    member, own = objects.create(new, get_if_exists=True)
    body, secret = server.made
    assert (own, member.name) == (True, body["metadata"]["name"])
    actor = FrayActor.from_manifest(body)
    assert set(_paths(body["spec"])) <= set(_paths(actor.to_manifest()["spec"]))
    assert actor.spec.entrypoint.callable is not None
    assert actor.spec.entrypoint.callable.secret_name == secret["metadata"]["name"]
    assert FRAYACTOR.kind == body["kind"]


def _paths(value: object, prefix: str = "") -> list[str]:
    if not isinstance(value, dict):
        return [prefix]
    return [path for key, part in value.items() for path in _paths(part, f"{prefix}.{key}")]

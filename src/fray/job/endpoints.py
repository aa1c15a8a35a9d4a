"""Where servers of jobs and actors listen: an address under a name, which all jobs of one root find.

An endpoint is a ConfigMap of the job or FrayActor that registers it, on this machine a file. It is gone with
its owner.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fray.errors import EndpointNotFoundError, InvalidOptionError
from fray.job.checks import check_name
from fray.kube.errors import AlreadyExistsError, NotFoundError
from fray.kube.objects import Manifest
from fray.kube.resources import CONFIG_MAPS, FRAYACTORS, FRAYJOBS, Resource
from fray.runtime.actors.identity import DETACHED, build_actor_name
from fray.settings import STATE_DIR
from fray.vocabulary import (
    API_VERSION,
    ENV_ACTOR_NAME,
    ENV_ACTOR_UID,
    ENV_JOB_NAME,
    ENV_ROOT_JOB,
    FRAYACTOR_KIND,
    FRAYJOB_KIND,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    ConditionType,
)

if TYPE_CHECKING:
    from fray.runtime.actors.record import RecordApi

__all__ = ["Endpoint", "lookup_endpoint", "register_endpoint"]

NO_JOB: Final = "this process is of no job and of no actor that can ask for it"


@dataclass(frozen=True)
class Endpoint:
    """An address under a name."""

    name: str
    address: str
    """As it was registered, such as `10.0.0.7:9000`."""
    metadata: Mapping[str, str] = field(default_factory=dict)


def register_endpoint(name: str, address: str, metadata: Mapping[str, str] | None = None) -> None:
    """Let all jobs of this job's root find an address by a name, as long as this job lives.

    In the process of a FrayActor it is as long as that one lives, and of a detached one all jobs of the
    namespace find it.
    What was registered under the name before, by any of them, is replaced.

    Raises:
        InvalidOptionError: The name or the address is empty, or something isn't text.
        EndpointNotFoundError: This process is of no job and no actor, or its pod may not ask the API server.
        ApiError: The cluster refuses, or can't be reached.
    """
    for option, text in (("name", name), ("address", address)):
        check_name(f"{option} of an endpoint", text)
        if not text:
            raise InvalidOptionError(f"{option} of an endpoint", repr(text), "text")
    for key, value in (metadata or {}).items():
        for text in (key, value):
            if not isinstance(text, str):
                raise InvalidOptionError(f"metadata {key!r} of an endpoint", repr(text), "text")
    registry = _Registry.open(name)
    published: dict[str, Any] = {
        "metadata": {"ownerReferences": [registry.build_owner()]},
        "data": {"name": name, "address": address, "metadata": json.dumps(dict(metadata or {}))},
    }
    key = registry.keys[0]
    body = {"apiVersion": "v1", "kind": "ConfigMap", **published}
    body["metadata"] = {**published["metadata"], "name": key, "labels": {LABEL_MANAGED_BY: MANAGED_BY}}
    while True:
        try:
            registry.api.create(CONFIG_MAPS, body, namespace=registry.api.namespace, repeat=True)
        except AlreadyExistsError:
            try:
                registry.api.patch(CONFIG_MAPS, key, published, namespace=registry.api.namespace)
            except NotFoundError:
                continue  # it has gone with its owner since then
        return


def lookup_endpoint(name: str) -> Endpoint:
    """Return what was registered under a name by a job or an actor of this root, else by a detached actor.

    Raises:
        EndpointNotFoundError: Nothing was, who did it has ended, or this process is of no job and no actor.
        ApiError: The cluster refuses, or can't be reached.
    """
    registry = _Registry.open(name)
    reason = "no job or actor of this root has registered it, and no detached actor"
    for key in registry.keys:
        found = registry.find(CONFIG_MAPS, key)
        if found is None:
            continue
        (owner,) = found["metadata"]["ownerReferences"]
        kind, resource = ("job", FRAYJOBS) if owner["kind"] == FRAYJOB_KIND else ("actor", FRAYACTORS)
        if registry.read_uid(resource, owner["name"]) == owner["uid"]:
            data = found["data"]
            return Endpoint(name, data["address"], json.loads(data["metadata"]))
        reason = f"{kind} {owner['name']!r}, which registered it, has ended"
    raise EndpointNotFoundError(name, reason)


@dataclass(frozen=True)
class _Registry:
    """Where an endpoint is kept, as this process sees it."""

    api: RecordApi
    environ: Mapping[str, str]
    keys: tuple[str, ...]
    """The names that the object may have: the one by which this process registers it comes first."""

    @classmethod
    def open(cls, name: str) -> _Registry:
        environ = os.environ  # noqa: TID251 - which job or actor this is
        root = environ.get(ENV_ROOT_JOB)
        api = _open_api(environ)
        if api is None or not (root or environ.get(ENV_ACTOR_NAME)):
            raise EndpointNotFoundError(name, NO_JOB)
        scopes = [DETACHED]
        if root:
            scopes.insert(0, api.get(FRAYJOBS, root, namespace=api.namespace)["metadata"]["uid"])
        return cls(api, environ, tuple(build_actor_name(f"endpoints of {scope}", name) for scope in scopes))

    def build_owner(self) -> Manifest:
        """Return a reference to the actor whose process this is, or to the job."""
        if actor := self.environ.get(ENV_ACTOR_NAME):
            kind, name, uid = FRAYACTOR_KIND, actor, self.environ[ENV_ACTOR_UID]
        else:
            kind, name = FRAYJOB_KIND, self.environ.get(ENV_JOB_NAME) or self.environ[ENV_ROOT_JOB]
            uid = self.read_uid(FRAYJOBS, name)
        return {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid}

    def read_uid(self, resource: Resource, name: str) -> str:
        """Return the uid of a job or an actor that lives; empty: it doesn't."""
        found = self.find(resource, name)
        return "" if found is None or _has_ended(found) else str(found["metadata"]["uid"])

    def find(self, resource: Resource, name: str) -> Manifest | None:
        """Return an object; None: there is none."""
        try:
            return self.api.get(resource, name, namespace=self.api.namespace)
        except NotFoundError:
            return None


def _open_api(environ: Mapping[str, str]) -> RecordApi | None:
    from fray.runtime.actors.local_objects import FileApi  # noqa: PLC0415 - loads what few need
    from fray.runtime.api.client import ApiAccess, ApiClient  # noqa: PLC0415

    if (access := ApiAccess.in_pod(environ)) is not None:
        return ApiClient(access)
    state = environ.get(STATE_DIR)
    return FileApi(Path(state)) if state else None


def _has_ended(owner: Manifest) -> bool:
    conditions = (owner.get("status") or {}).get("conditions") or ()
    finished = any(each["type"] == ConditionType.FINISHED and each["status"] == "True" for each in conditions)
    return finished or "deletionTimestamp" in owner["metadata"]

"""Where servers of jobs listen: an address under a name, which all jobs of one root find.

An endpoint is a ConfigMap of the job that registers it, on this machine a file. It is gone with its job.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fray.errors import EndpointNotFoundError
from fray.kube.errors import AlreadyExistsError, NotFoundError
from fray.kube.objects import Manifest
from fray.kube.resources import CONFIG_MAPS, FRAYJOBS
from fray.runtime.actors.identity import build_actor_name
from fray.settings import STATE_DIR
from fray.vocabulary import (
    API_VERSION,
    ENV_JOB_NAME,
    ENV_ROOT_JOB,
    FRAYJOB_KIND,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    ConditionType,
)

if TYPE_CHECKING:
    from fray.runtime.actors.record import RecordApi

__all__ = ["Endpoint", "lookup_endpoint", "register_endpoint"]

NO_JOB: Final = "this process is of no job that can ask for it"


@dataclass(frozen=True)
class Endpoint:
    """An address under a name."""

    name: str
    address: str
    """As it was registered, such as `10.0.0.7:9000`."""
    metadata: Mapping[str, str] = field(default_factory=dict)


def register_endpoint(name: str, address: str, metadata: Mapping[str, str] | None = None) -> None:
    """Let all jobs of this job's root find an address by a name, as long as this job lives.

    What was registered under the name before, by any of them, is replaced.

    Raises:
        EndpointNotFoundError: This process is of no job, or its pod may not ask the API server.
        ApiError: The cluster refuses, or can't be reached.
    """
    registry = _Registry.open(name)
    owner = {
        "apiVersion": API_VERSION,
        "kind": FRAYJOB_KIND,
        "name": registry.job,
        "uid": registry.read_uid(registry.job),
    }
    published: dict[str, Any] = {
        "metadata": {"ownerReferences": [owner]},
        "data": {"name": name, "address": address, "metadata": json.dumps(dict(metadata or {}))},
    }
    body = {"apiVersion": "v1", "kind": "ConfigMap", **published}
    body["metadata"] = {
        **published["metadata"],
        "name": registry.key,
        "labels": {LABEL_MANAGED_BY: MANAGED_BY},
    }
    while True:
        try:
            registry.api.create(CONFIG_MAPS, body, namespace=registry.api.namespace, repeat=True)
        except AlreadyExistsError:
            try:
                registry.api.patch(CONFIG_MAPS, registry.key, published, namespace=registry.api.namespace)
            except NotFoundError:
                continue  # it has gone with its job since then
        return


def lookup_endpoint(name: str) -> Endpoint:
    """Return what was registered under a name by a job of this one's root.

    Raises:
        EndpointNotFoundError: Nothing was, the job that did it has ended, or this process is of no job.
        ApiError: The cluster refuses, or can't be reached.
    """
    registry = _Registry.open(name)
    try:
        found = registry.api.get(CONFIG_MAPS, registry.key, namespace=registry.api.namespace)
    except NotFoundError:
        raise EndpointNotFoundError(name, "no job of this root has registered it") from None
    (owner,) = found["metadata"]["ownerReferences"]
    if registry.read_uid(owner["name"]) != owner["uid"]:
        raise EndpointNotFoundError(name, f"job {owner['name']!r}, which registered it, has ended")
    data = found["data"]
    return Endpoint(name, data["address"], json.loads(data["metadata"]))


@dataclass(frozen=True)
class _Registry:
    """Where an endpoint of this process's root job is kept."""

    api: RecordApi
    job: str
    key: str
    """The name of the object."""

    @classmethod
    def open(cls, name: str) -> _Registry:
        environ = os.environ  # noqa: TID251 - which job this is
        root = environ.get(ENV_ROOT_JOB)
        api = _open_api(environ)
        if not root or api is None:
            raise EndpointNotFoundError(name, NO_JOB)
        job = api.get(FRAYJOBS, root, namespace=api.namespace)
        scope = f"endpoints of {job['metadata']['uid']}"
        return cls(api, environ.get(ENV_JOB_NAME) or root, build_actor_name(scope, name))

    def read_uid(self, job: str) -> str:
        """Return the uid of a job that lives; empty: it doesn't."""
        try:
            found = self.api.get(FRAYJOBS, job, namespace=self.api.namespace)
        except NotFoundError:
            return ""
        return "" if _has_finished(found) else str(found["metadata"]["uid"])


def _open_api(environ: Mapping[str, str]) -> RecordApi | None:
    from fray.runtime.actors.local_objects import FileApi  # noqa: PLC0415 - loads what few need
    from fray.runtime.api.client import ApiAccess, ApiClient  # noqa: PLC0415

    if (access := ApiAccess.in_pod(environ)) is not None:
        return ApiClient(access)
    state = environ.get(STATE_DIR)
    return FileApi(Path(state)) if state else None


def _has_finished(job: Manifest) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] == ConditionType.FINISHED and each["status"] == "True" for each in conditions)

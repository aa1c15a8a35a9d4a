"""FrayJobs on a real API server, as tests write and judge them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from e2e.cluster.api import Api, Response
from fray.wire.model import CustomKind
from fray.wire.schema import FRAYJOB

__all__ = ["CRD_COLLECTION", "Cause", "FrayJobs", "await_served", "causes_of"]

CRD_COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEADLINE_SECONDS = 120.0


def _list_resources(client: Api, version: str) -> list[str]:
    answer = client.get(version)
    # The server says 404 in plain text as long as it doesn't know the group.
    return [each["name"] for each in answer.body.get("resources", [])] if answer.ok else []


def await_served(client: Api, crd: str) -> None:
    """Return once the API server serves the kind that a CRD defines, and tells of it."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        body = client.get(crd).body
        conditions = {c["type"]: c for c in (body.get("status") or {}).get("conditions") or []}
        established = conditions.get("Established", {}).get("status") == "True"
        spec = body["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        version = f"/apis/{group}/{spec['versions'][0]['name']}"
        # Each is a controller's of its own; kopf asks all but the first and the last, once, in this order.
        if (
            established
            and group in [each["name"] for each in client.get("/apis").body["groups"]]
            and plural in _list_resources(client, version)
            and client.get(f"{version}/{plural}").ok
        ):
            return
        assert time.monotonic() < deadline, f"{crd} isn't served: {conditions}"
        time.sleep(0.02)


@dataclass(frozen=True)
class FrayJobs:
    """The FrayJobs of one namespace."""

    api: Api
    namespace: str

    @property
    def collection(self) -> str:
        """Path of the collection."""
        return self._collection_of(FRAYJOB)

    def _collection_of(self, kind: CustomKind[Any]) -> str:
        return f"/apis/{kind.group}/{kind.version}/namespaces/{self.namespace}/{kind.plural}"

    def path(self, name: str, subresource: str = "", kind: CustomKind[Any] = FRAYJOB) -> str:
        """Path of one job, or of another object, or of a subresource of it."""
        return "/".join(part for part in (self._collection_of(kind), name, subresource) if part)

    def create(self, manifest: dict[str, Any], kind: CustomKind[Any] = FRAYJOB) -> Response:
        """Create a job, or another object; unknown fields are refused."""
        return self.api.post(self._collection_of(kind), manifest)

    def created(self, manifest: dict[str, Any], kind: CustomKind[Any] = FRAYJOB) -> dict[str, Any]:
        """Create a job, or another object, that must be taken; returns it as stored."""
        response = self.create(manifest, kind)
        assert response.status == 201, response.body
        stored: dict[str, Any] = response.body
        return stored

    def replace(self, job: dict[str, Any], kind: CustomKind[Any] = FRAYJOB) -> Response:
        """PUT a changed job, or another object."""
        return self.api.put(self.path(job["metadata"]["name"], kind=kind), job)


@dataclass(frozen=True)
class Cause:
    """One reason why the API server refused an object."""

    path: str
    message: str


def causes_of(refusal: Response) -> list[Cause]:
    """The fields that the API server names in a refusal, without its remark that rules went unchecked."""
    assert not refusal.ok, refusal.body
    causes = (refusal.body.get("details") or {}).get("causes") or []
    return [
        Cause(cause.get("field", "").lstrip("."), cause["message"])
        for cause in causes
        if cause.get("field") != "<nil>"
    ]

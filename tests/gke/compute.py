"""Compute Engine and the project's services beside the fake GKE: Google's session, with answers made here.

Answers are real `requests` responses from an adapter in place of the network, at the real address.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter

from tests.gke.server import FakeGke

PATH = re.compile(
    r"https://compute\.googleapis\.com/compute/v1/projects/([^/]+)/regions/([^/]+)(?:/(resourcePolicies|operations)(?:/([^/]+))?)?"
)

CPUS = {
    "quotaId": "CPUS-per-project-region",
    "dimensionsInfos": [{"dimensions": {"region": "us-east5"}, "details": {"value": "72"}}],
}
MODES = ("AUTO_CONNECT", "PROVISION_ONLY")
"""Connection modes of an accelerator topology, the default first: the API's page on resourcePolicies."""


class ComputeAdapter(BaseAdapter):
    """Answers for one cluster's project and region.

    `scripted` are (status, body) for the next calls of Compute Engine, `others` those of other services, by
    the first word of their host. `family_quotas` are limits by region and family.
    """

    def __init__(self, gke: FakeGke) -> None:
        super().__init__()
        self.gke = gke
        self.calls: list[str] = []
        self.scripted: list[tuple[int, Any]] = []
        self.quotas: dict[str, tuple[float, float]] = {}
        self.others: dict[str, tuple[int, Any]] = {}
        self.apis = {"container.googleapis.com", "compute.googleapis.com", "artifactregistry.googleapis.com"}
        self.permissions = {"container.clusters.get", "container.clusters.update", "container.operations.get"}
        self.permissions |= {"container.operations.list"}
        self.permissions |= {"compute.resourcePolicies.create", "compute.resourcePolicies.get"}
        self.family_quotas: dict[tuple[str, str], int] = {}
        self._polls = 0

    def send(self, request: PreparedRequest, *_: Any, **__: Any) -> Response:
        self.calls.append(f"{request.method} {request.url}")
        host = re.match(r"https://(\w+)\.googleapis\.com/", request.url or "")
        service = "" if host is None else host[1]
        if service != "compute":
            status, body = self.others.get(service) or self._answer_of(service, request)
        else:
            status, body = self.scripted.pop(0) if self.scripted else self._answer(request)
        response = Response()
        response.status_code, response.request, response.url = status, request, request.url or ""
        text = body if isinstance(body, str) else json.dumps(body)
        response.raw = io.BytesIO(text.encode())
        return response

    def close(self) -> None:
        pass

    def _answer_of(self, service: str, request: PreparedRequest) -> tuple[int, Any]:
        """Answer as the project's services do: their pages are named in `fray.nodepools.project`."""
        address = urlsplit(request.url or "")
        asked, project = parse_qs(address.query), f"projects/{self.gke.project}"
        match service, address.path:
            case "serviceusage", path if path == f"/v1/{project}/services:batchGet":
                states = {True: "ENABLED", False: "DISABLED"}
                names = [(name, name.rpartition("/")[2] in self.apis) for name in asked["names"]]
                return 200, {"services": [{"name": name, "state": states[on]} for name, on in names]}
            case "cloudresourcemanager", path if path == f"/v3/{project}:testIamPermissions":
                wanted = json.loads(request.body or b"{}")["permissions"]
                held = [each for each in wanted if each in self.permissions]
                return 200, {"permissions": held} if held else {}
            case "cloudquotas", path if path.startswith(f"/v1/{project}/locations/global/services/compute."):
                # One quota a page: who reads the first page only sees no family.
                pages = [{"quotaInfos": [CPUS], "nextPageToken": "2"}, {"quotaInfos": [self._families()]}]
                return 200, pages[int(asked.get("pageToken", ["1"])[0]) - 1]
        return _error(404, "The resource was not found")

    def _families(self) -> dict[str, Any]:
        infos = [
            {"dimensions": {"region": region, "tpu_family": family}, "details": {"value": str(most)}}
            for (region, family), most in self.family_quotas.items()
        ]
        return {"quotaId": "TPUS-PER-TPU-FAMILY-per-project-region", "dimensionsInfos": infos}

    def _answer(self, request: PreparedRequest) -> tuple[int, Any]:
        found = PATH.fullmatch(request.url or "")
        if found is None or found[1] != self.gke.project or found[2] != self.gke.region:
            return _error(404, "The resource was not found")
        kind, name, policies = found[3], found[4], self.gke.policies
        if kind is None:
            quotas = [
                {"metric": key, "usage": used, "limit": most} for key, (used, most) in self.quotas.items()
            ]
            return 200, {"name": self.gke.region, "quotas": quotas}
        if kind == "operations":
            self._polls += 1
            return 200, {"name": name, "status": "DONE" if self._polls > 1 else "RUNNING"}
        if request.method == "GET":
            if name not in policies:
                return _error(
                    404, f"The resource 'projects/p/regions/r/resourcePolicies/{name}' was not found"
                )
            return 200, {"name": name, "workloadPolicy": policies[name]}
        body = json.loads(request.body or b"{}")
        workload = body["workloadPolicy"]
        if (
            set(workload) - {"type", "acceleratorTopology", "acceleratorTopologyMode"}
            or workload["type"] != "HIGH_THROUGHPUT"
            or workload.get("acceleratorTopologyMode", MODES[0]) not in MODES
        ):
            return _error(400, f"Invalid value for field 'workloadPolicy': {workload}")
        if body["name"] in policies:
            return _error(409, f"The resource '{body['name']}' already exists")
        policies[body["name"]] = workload
        return 200, {"name": "operation-1", "status": "RUNNING"}


def _error(code: int, message: str) -> tuple[int, Any]:
    return code, {"error": {"code": code, "message": message, "errors": [{"message": message}]}}


def open_fake_session(gke: FakeGke, adapter: ComputeAdapter | None = None) -> AuthorizedSession:
    """Return Google's session, which asks the fake."""
    session = AuthorizedSession(AnonymousCredentials())
    session.mount("https://", adapter or ComputeAdapter(gke))
    return session

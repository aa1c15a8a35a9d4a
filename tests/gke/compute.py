"""Compute Engine's resource policies beside the fake GKE: Google's session, with answers made here.

Answers are real `requests` responses from an adapter in place of the network, at the real address.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter

from tests.gke.server import FakeGke

PATH = re.compile(
    r"https://compute\.googleapis\.com/compute/v1/projects/([^/]+)/regions/([^/]+)(?:/(resourcePolicies|operations)(?:/([^/]+))?)?"
)

MODES = ("AUTO_CONNECT", "PROVISION_ONLY")
"""Connection modes of an accelerator topology, the default first: the API's page on resourcePolicies."""


class ComputeAdapter(BaseAdapter):
    """Answers for one cluster's project and region. `scripted` are (status, body) for the next calls."""

    def __init__(self, gke: FakeGke) -> None:
        super().__init__()
        self.gke = gke
        self.calls: list[str] = []
        self.scripted: list[tuple[int, Any]] = []
        self.quotas: dict[str, tuple[float, float]] = {}
        self._polls = 0

    def send(self, request: PreparedRequest, *_: Any, **__: Any) -> Response:
        self.calls.append(f"{request.method} {request.url}")
        status, body = self.scripted.pop(0) if self.scripted else self._answer(request)
        response = Response()
        response.status_code, response.request, response.url = status, request, request.url or ""
        text = body if isinstance(body, str) else json.dumps(body)
        response.raw = io.BytesIO(text.encode())
        return response

    def close(self) -> None:
        pass

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

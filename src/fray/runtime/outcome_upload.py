"""The outcome of a callable goes to its client through the API server: a ConfigMap that its pod creates.

Standard library only, in any image. The pod's service account needs to create and get ConfigMaps, and nothing
more. What the bytes mean is in `fray.payload.outcome`.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fray.errors import OutcomeUploadError
from fray.vocabulary import (
    API_VERSION,
    FRAYJOB_KIND,
    LABEL_ATTEMPT,
    LABEL_JOB,
    LABEL_JOB_UID,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    OUTCOME_KEY,
)

__all__ = ["ApiAccess", "OutcomePlace", "upload_outcome"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/"""
TIMEOUT = 5.0
"""Seconds that each step of a request may take."""
PAUSES = (0.5, 2.0)
"""Seconds before each further try; a pod that is being ended may have no more than 15."""


@dataclass(frozen=True)
class ApiAccess:
    """An API server as a pod sees it; `authority` is the file with the certificate that it is known by."""

    url: str
    token: str = field(repr=False)
    namespace: str
    authority: Path | None = None

    @classmethod
    def in_pod(cls, environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> ApiAccess | None:
        """Return that of this pod; None outside of pods, and in those without a service account's token."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
        try:
            token = (directory / "token").read_text(encoding="utf-8").strip()
            namespace = (directory / "namespace").read_text(encoding="utf-8").strip()
        except OSError:
            return None
        if not host:
            return None
        address = f"[{host}]" if ":" in host else host
        return cls(f"https://{address}:{port}", token, namespace, directory / "ca.crt")


@dataclass(frozen=True)
class OutcomePlace:
    """The ConfigMap that an outcome goes into, and the FrayJob that owns it."""

    name: str
    job: str
    job_uid: str
    attempt: int

    def build_manifest(self, outcome: bytes) -> dict[str, Any]:
        """Return the ConfigMap with an outcome in it; it goes with its FrayJob."""
        labels = {
            LABEL_MANAGED_BY: MANAGED_BY,
            LABEL_JOB: self.job,
            LABEL_JOB_UID: self.job_uid,
            LABEL_ATTEMPT: str(self.attempt),
        }
        owner = {"apiVersion": API_VERSION, "kind": FRAYJOB_KIND, "name": self.job, "uid": self.job_uid}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "labels": labels, "ownerReferences": [owner]},
            "binaryData": {OUTCOME_KEY: base64.b64encode(outcome).decode()},
            "immutable": True,
        }


def upload_outcome(
    access: ApiAccess, place: OutcomePlace, outcome: bytes, *, pause: Callable[[float], object] = time.sleep
) -> None:
    """Create the ConfigMap; it may be there already, if it is the same.

    Raises:
        OutcomeUploadError: the server refuses it, can't be reached, or has another one of that name.
    """
    collection = f"/api/v1/namespaces/{access.namespace}/configmaps"
    manifest = place.build_manifest(outcome)
    try:
        status, answer = _persistently(access, "POST", collection, manifest, pause)
        if status == http.client.CONFLICT:
            # An earlier try whose answer was lost, or an earlier pod of the same rank.
            status, answer = _persistently(access, "GET", f"{collection}/{place.name}", None, pause)
            if status == http.client.OK and answer.get("binaryData") != manifest["binaryData"]:
                raise OutcomeUploadError(place.name, "another outcome is there already")
    except (OSError, http.client.HTTPException) as error:
        raise OutcomeUploadError(place.name, f"{type(error).__name__}: {error}") from error
    except ValueError:
        # The error isn't chained: it shows the header that can't be sent, and so the token.
        problem = "the address or the token that the pod was given can't be sent"
        raise OutcomeUploadError(place.name, problem) from None
    if status not in (http.client.OK, http.client.CREATED):
        raise OutcomeUploadError(place.name, f"HTTP {status}: {answer.get('message', 'no reason given')}")


def _persistently(
    access: ApiAccess, method: str, path: str, body: Any, pause: Callable[[float], object]
) -> tuple[int, dict[str, Any]]:
    """Return status and answer, after further tries where the server is silent or overloaded."""
    for seconds in PAUSES:
        try:
            status, answer = _request(access, method, path, body)
            if status != http.client.TOO_MANY_REQUESTS and status < http.client.INTERNAL_SERVER_ERROR:
                return status, answer
        except (OSError, http.client.HTTPException):
            pass  # the last try tells why
        pause(seconds)
    return _request(access, method, path, body)


def _request(access: ApiAccess, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    connection = _connect(access)
    try:
        headers = {"Authorization": f"Bearer {access.token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {}
    return response.status, answer if isinstance(answer, dict) else {}


def _connect(access: ApiAccess) -> http.client.HTTPConnection:
    parts = urlsplit(access.url)
    assert parts.hostname is not None
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)
    context = ssl.create_default_context(cafile=str(access.authority) if access.authority else None)
    return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=TIMEOUT, context=context)

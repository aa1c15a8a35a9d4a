"""What Compute Engine keeps: workload policies, which tpu7x pools name, and quota.

By Google's own authorized session over HTTP, which comes with the extra `gke`. What Compute Engine says
becomes a `NodePoolError`, as what GKE says.
"""

# ruff: noqa: PLC0415 - google-auth is an extra, and imported only when it is used

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fray.errors import GkeCredentialsError, NodePoolError, PackageMissingError
from fray.nodepools.answers import Retry, derive_error
from fray.nodepools.bodies import GkeCluster, build_policy
from fray.nodepools.requests import WorkloadPolicy

if TYPE_CHECKING:
    from requests import Response, Session

__all__ = ["CALL_SECONDS", "Compute", "OpenSession", "Quota", "explained", "open_session", "read_answer"]

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
ADDRESS: Final = "https://compute.googleapis.com/compute/v1"
CALL_SECONDS: Final = 45.0
POLL_SECONDS: Final = 2.0
POLLS: Final = 60

OpenSession = Callable[[], "Session"]


@dataclass(frozen=True)
class Quota:
    """One of a region's quotas, by Compute Engine's name for it."""

    metric: str
    usage: float
    limit: float


def open_session() -> Session:
    """Return a session with Application Default Credentials; nothing is sent yet.

    Raises:
        PackageMissingError: The extra `gke` isn't installed.
        GkeCredentialsError: There are no credentials.
    """
    try:
        import google.auth
        from google.auth.transport.requests import AuthorizedSession
    except ImportError as error:
        raise PackageMissingError("asking Google Cloud", error.name or "google-auth", "gke") from error
    with explained("credentials"):
        credentials, _ = google.auth.default(scopes=[SCOPE])
    return AuthorizedSession(credentials)


class Compute:
    """Compute Engine in the region of a GKE cluster."""

    def __init__(self, cluster: GkeCluster, session: Session, *, sleep: Callable[[float], None]) -> None:
        self._session, self._sleep = session, sleep
        self._region = f"{ADDRESS}/projects/{cluster.project}/regions/{cluster.region}"

    def ensure_policy(self, policy: WorkloadPolicy) -> bool:
        """Make a workload policy if there is none of its name; return whether that was done.

        Raises:
            NodePoolError: Compute Engine refuses it, or has one of that name with another topology or mode.
        """
        subject = f"workload policy {policy.name}"
        path = f"{self._region}/resourcePolicies"
        with explained(subject):
            found = self._session.get(f"{path}/{policy.name}", timeout=CALL_SECONDS)
            if found.status_code != 404:
                self._check(policy, read_answer(subject, found))
                return False
            answer = self._session.post(path, json=build_policy(policy), timeout=CALL_SECONDS)
            if answer.status_code == 409:
                return False  # somebody else was faster
            self._follow(subject, read_answer(subject, answer))
        return True

    def list_quotas(self) -> list[Quota]:
        """Return the region's quotas that Compute Engine keeps; some TPUs' are elsewhere."""
        subject = "quota"
        with explained(subject):
            body = read_answer(subject, self._session.get(self._region, timeout=CALL_SECONDS))
        entries = body.get("quotas")
        return [
            Quota(str(each["metric"]), each.get("usage", 0), each["limit"])
            for each in (entries if isinstance(entries, list) else ())
            if isinstance(each, dict) and "metric" in each
            if isinstance(each.get("limit"), int | float) and isinstance(each.get("usage", 0), int | float)
        ]

    def _check(self, policy: WorkloadPolicy, body: Mapping[str, Any]) -> None:
        workload = body.get("workloadPolicy") or {}
        topology, mode = workload.get("acceleratorTopology"), workload.get("acceleratorTopologyMode")
        found, wanted = (topology, mode or "AUTO_CONNECT"), (policy.topology, policy.mode)
        if found != wanted:
            there, needed = (" in mode ".join(map(str, each)) for each in (found, wanted))
            reason, sentence = "PolicyRefused", f"it is there with topology {there}, not {needed}"
            remedy = "Name another with --policy."
            raise NodePoolError(f"workload policy {policy.name}", reason, Retry.NEVER, sentence, remedy, "")

    def _follow(self, subject: str, operation: Mapping[str, Any]) -> None:
        for _ in range(POLLS):
            if operation.get("status") == "DONE":
                break
            self._sleep(POLL_SECONDS)
            path = f"{self._region}/operations/{operation.get('name', '')}"
            operation = read_answer(subject, self._session.get(path, timeout=CALL_SECONDS))
        else:
            raise derive_error(subject, "no end of the operation that makes it", code="DEADLINE_EXCEEDED")
        errors = (operation.get("error") or {}).get("errors") or ()
        if errors:
            said = [f"[{each.get('code')}] {each.get('message')}" for each in errors]
            raise derive_error(subject, "; ".join(said))


@contextmanager
def explained(subject: str) -> Iterator[None]:
    """Raise what keeps Google from answering as errors of Fray's."""
    from google.auth.exceptions import GoogleAuthError
    from requests import RequestException

    try:
        yield
    except GoogleAuthError as error:
        raise GkeCredentialsError(str(error).partition("\n")[0]) from error
    except RequestException as error:
        raise derive_error(subject, str(error), code="UNAVAILABLE") from error


def read_answer(subject: str, answer: Response) -> dict[str, Any]:
    """Return the object in an answer of Google's; raises `NodePoolError` for a refusal, and for no object."""
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        code = "UNAVAILABLE" if answer.status_code >= 500 or answer.ok else "UNKNOWN"
        raise derive_error(subject, f"HTTP {answer.status_code}: {answer.text[:200]}", code=code)
    if answer.ok:
        return body
    error = body.get("error")
    said = error if isinstance(error, dict) else {}
    raise derive_error(subject, str(said.get("message", "")), code=_code(answer.status_code))


def _code(status: int) -> str:
    """Return gRPC's word for an HTTP status, as the answers' table has it."""
    words = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
    return words.get(status) or ("RESOURCE_EXHAUSTED" if status == 429 else "UNAVAILABLE")

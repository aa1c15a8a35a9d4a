"""Ray's job API, over HTTP: the one place that imports Ray's client for it, and knows its errors."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Final, TypeVar, cast

import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobSubmissionClient

from fray.cluster.ray.submission import RayJob
from fray.errors import RayRefusedError, RayUnreachableError

__all__ = ["JobApi"]

MOST_NODES: Final = 10_000
"""The most that Ray lists, which by itself gives 100 (`RAY_MAX_LIMIT_FROM_API_SERVER` of its state API)."""

T = TypeVar("T")

# Ray's client tells of each upload and each connection.
for _name in ("job.sdk", "dashboard_sdk"):
    logging.getLogger(f"ray.dashboard.modules.{_name}").setLevel(logging.WARNING)
logging.getLogger("ray._private.runtime_env.packaging").setLevel(logging.WARNING)


class JobApi:
    """Asks one Ray. Methods raise `RayUnreachableError`, or `RayRefusedError` where it says no."""

    def __init__(self, address: str | None) -> None:
        self._named = address or "auto"
        with self._errors():
            self._client = _Client(address)

    @property
    def address(self) -> str:
        """The URL of Ray's dashboard."""
        return self._client.get_address()

    def version(self) -> str:
        """Return the version of the job API."""
        return self._ask(self._client.get_version)

    def submit(self, arguments: dict[str, Any]) -> str:
        """Send a folder along with a job, start it and return its id."""
        return self._ask(lambda: self._client.submit_job(**arguments))

    def list(self) -> list[RayJob]:
        """Return all jobs that were submitted, sorted by id; drivers that others run have no id here."""
        found = [_describe(each) for each in self._ask(self._client.list_jobs) if each.submission_id]
        return sorted(found, key=lambda job: job.id)

    def stop(self, job_id: str) -> None:
        """Send SIGTERM to a job's processes, and SIGKILL later."""
        self._ask(lambda: self._client.stop_job(job_id))

    def delete(self, job_id: str) -> None:
        """Forget a job that has ended."""
        self._ask(lambda: self._client.delete_job(job_id))

    def read_log(self, job_id: str) -> str:
        """Return what a job's program has printed so far."""
        return self._ask(lambda: self._client.get_job_logs(job_id))

    async def follow_log(self, job_id: str) -> AsyncGenerator[str, None]:
        """Yield what a job's program prints, in pieces, until the job has ended."""
        with self._errors():
            # Closed with its connection where the caller leaves: it is a generator, whatever Ray says.
            source = cast("AsyncGenerator[str, None]", self._client.tail_job_logs(job_id))
            async with aclosing(source) as pieces:
                async for piece in pieces:
                    yield piece

    def list_nodes(self) -> tuple[dict[str, float], ...]:
        """Return what each node that is there has, by Ray's names, in use or not; empty: Ray doesn't say."""
        query = {
            "filter_keys": "state",
            "filter_predicates": "=",
            "filter_values": "ALIVE",
            "limit": MOST_NODES,
        }
        answer = self._ask(lambda: self._client.request("/api/v0/nodes", query))
        found = answer.json()["data"]["result"]["result"] if answer.ok else []
        return tuple(each["resources_total"] for each in found)

    def read_file(self, node: str, path: str) -> bytes | None:
        """Return a file below a node's logs; None where it isn't there, or the node isn't."""
        query = {"node_id": node, "filename": path, "lines": -1, "filter_ansi_code": False}
        answer = self._ask(lambda: self._client.request("/api/v0/logs/file", query))
        return answer.content if answer.ok else None

    def _ask(self, request: Callable[[], T]) -> T:
        with self._errors():
            return request()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (requests.RequestException, AuthenticationError, ConnectionError, ValueError) as error:
            raise RayUnreachableError(self._named, str(error)) from error


class _Client(JobSubmissionClient):
    """Ray's own client, with the number of an answer in its error."""

    def _raise_error(self, r: requests.Response) -> None:
        raise RayRefusedError(self.get_address(), r.status_code, r.text)

    def request(self, path: str, query: dict[str, Any]) -> requests.Response:
        """Ask for what Ray's client has no method for, with its token and certificates."""
        return self._do_request("GET", path, params=query)


def _describe(details: JobDetails) -> RayJob:
    return RayJob(
        id=str(details.submission_id),
        status=details.status.value,
        metadata=details.metadata or {},
        node=details.driver_node_id,
        message=details.message,
        ended_at=None if details.end_time is None else details.end_time / 1000,
    )

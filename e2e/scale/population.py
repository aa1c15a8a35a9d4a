"""Fill a namespace with copies of one job, thousands that live or that have finished, and empty it again.

What a copy is made of is said in `copies`; here it is written, by several connections at once.
"""

from __future__ import annotations

import http.client
import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from queue import SimpleQueue
from typing import Any

from e2e.cluster.api import Api, ApiError, Response
from e2e.cluster.command import await_condition
from e2e.cluster.keep_alive import KeepAliveApi
from e2e.scale.copies import Copy, Original, build_job
from fray.vocabulary import API_VERSION, FRAYJOB_PLURAL, JOBSET_API_VERSION

__all__ = ["empty", "populate"]

CLIENTS = 6
PAGE = 100
"""Objects that one request deletes: it has the API server delete them one by one."""
EMPTY_SECONDS = 600.0


def populate(api: Api, original: Original, names: Sequence[str], *, nodes: Sequence[str]) -> None:
    """Write a copy of `original` under each name, its pods spread over `nodes`, statuses included.

    Raises ApiError.
    """
    idle = SimpleQueue[KeepAliveApi]()

    def write(name: str, node: str) -> None:
        connection = idle.get()
        try:
            _write(connection, original, name, node=node)
        finally:
            idle.put(connection)

    with ExitStack() as connections, ThreadPoolExecutor(CLIENTS) as pool:
        for _ in range(CLIENTS):
            idle.put(connections.enter_context(closing(KeepAliveApi(api))))
        list(pool.map(write, names, itertools.cycle(nodes)))


def empty(api: Api, collection: str) -> None:
    """Delete all objects of a collection, and return once none is left.

    A request that is not answered is sent again: the server may be busy with what went before.

    Raises:
        ApiError: The server refuses.
        NotReadyError: Some are left after ten minutes; it tells the last answer that was lost.
    """
    options = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}

    def is_empty() -> bool:
        try:
            _require(api.request("DELETE", collection, options, query={"limit": str(PAGE)}))
            return not _require(api.get(collection, limit="1")).body["items"]
        except (OSError, http.client.HTTPException) as lost:
            last.append(lost)
            return False

    last: deque[Exception] = deque(maxlen=1)
    await_condition(f"{collection} is empty", is_empty, timeout=EMPTY_SECONDS, details=lambda: repr([*last]))


def _write(api: Api, original: Original, name: str, *, node: str) -> None:
    namespace = original.job["metadata"]["namespace"]
    jobs = f"/apis/{API_VERSION}/namespaces/{namespace}/{FRAYJOB_PLURAL}"
    jobsets = f"/apis/{JOBSET_API_VERSION}/namespaces/{namespace}/jobsets"
    copy = Copy(original, _require(api.post(jobs, build_job(original, name))).body)
    jobset = _create(api, jobsets, copy.build_jobset())
    for pod in copy.build_pods(jobset, node=node):
        _create(api, f"/api/v1/namespaces/{namespace}/pods", pod)
    # Last: an attempt runs only once its pods are there.
    _require(api.merge(f"{jobs}/{name}/status", {"status": copy.build_status()}))


def _create(api: Api, collection: str, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Create an object and then its status, which the server takes separately; returns the object."""
    created: Mapping[str, Any] = _require(api.post(collection, manifest)).body
    if "status" in manifest:
        path = f"{collection}/{manifest['metadata']['name']}/status"
        _require(api.merge(path, {"status": manifest["status"]}))
    return created


def _require(answer: Response) -> Response:
    if not answer.ok:
        raise ApiError("the server refused to write or delete copies", answer)
    return answer

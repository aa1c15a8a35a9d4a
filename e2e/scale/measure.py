"""Run many jobs at once, and time them from the first request until the last has ended."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from e2e.cluster.api import Api, ApiError, Response
from e2e.cluster.command import await_condition
from e2e.scale.workload import build_frayjob, build_jobset
from fray.vocabulary import API_VERSION, FRAYJOB_PLURAL, JOBSET_API_VERSION

__all__ = ["measure_frayjobs", "measure_jobsets", "measure_start_seconds", "slowed", "summarize"]

Manifest = Mapping[str, Any]
CLIENTS = 4
LIMIT_SECONDS = 1800.0
START_SECONDS = 30.0


def measure_frayjobs(api: Api, namespace: str, count: int, **spec: Any) -> float:
    """Seconds that `count` FrayJobs take. Raises ApiError, NotReadyError."""
    jobs = [build_frayjob(f"fray-{number:04}", **spec) for number in range(count)]
    return _measure(api, _frayjobs(namespace), jobs, "Finished")


def measure_jobsets(api: Api, namespace: str, count: int, **spec: Any) -> float:
    """Seconds that the same jobs take as JobSets made by hand. Raises ApiError, NotReadyError."""
    jobsets = [build_jobset(f"raw-{number:04}", **spec) for number in range(count)]
    return _measure(api, _jobsets(namespace), jobsets, "Completed")


def measure_start_seconds(api: Api, namespace: str, count: int) -> list[float]:
    """Seconds from each of `count` FrayJobs, one after the other, to its JobSet, in order of length.

    Raises ApiError, NotReadyError.
    """
    seconds = []
    for number in range(count):
        job = build_frayjob(f"idle-{number:04}")
        jobset = f"{_jobsets(namespace)}/{job['metadata']['name']}-a1"
        started = time.monotonic()
        _create(api, _frayjobs(namespace), job)
        while not api.get(jobset).ok:
            if time.monotonic() > started + START_SECONDS:
                raise ApiError(f"no JobSet after {START_SECONDS} s", api.get(jobset))
        seconds.append(time.monotonic() - started)
        _await_all(api, _frayjobs(namespace), number + 1, "Finished")
    return sorted(seconds)


def summarize(seconds: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile in milliseconds."""
    *_, last = cuts = statistics.quantiles(seconds, n=20, method="inclusive")
    return {"p50": round(cuts[9] * 1000, 1), "p95": round(last * 1000, 1)}


def _measure(api: Api, collection: str, manifests: Sequence[Manifest], end: str) -> float:
    started = time.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda manifest: _create(api, collection, manifest), manifests))
    _await_all(api, collection, len(manifests), end)
    return time.monotonic() - started


def _await_all(api: Api, collection: str, count: int, end: str) -> None:
    """Return once `count` objects have the condition."""

    def ended() -> int:
        objects = _require(api.get(collection)).body["items"]
        return sum(_has(found, end) for found in objects)

    await_condition(
        f"all {count} of {collection} are {end}",
        slowed(lambda: ended() >= count),
        timeout=LIMIT_SECONDS,
        details=lambda: f"{ended()} are",
    )


def slowed(probe: Callable[[], bool]) -> Callable[[], bool]:
    """The same, but asking so rarely that asking takes a tenth of the time at most."""
    ready = 0.0

    def ask() -> bool:
        nonlocal ready
        started = time.monotonic()
        if started < ready:
            return False
        answer = probe()
        ready = time.monotonic() + 9 * (time.monotonic() - started)
        return answer

    return ask


def _has(found: Manifest, condition: str) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


def _create(api: Api, collection: str, manifest: Manifest) -> None:
    _require(api.post(collection, manifest))


def _require(answer: Response) -> Response:
    if not answer.ok:
        raise ApiError("a request of the measurement was refused", answer)
    return answer


def _frayjobs(namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{FRAYJOB_PLURAL}"


def _jobsets(namespace: str) -> str:
    return f"/apis/{JOBSET_API_VERSION}/namespaces/{namespace}/jobsets"

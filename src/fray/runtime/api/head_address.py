"""How a worker learns where the head of its pool is: from rank 0's pod of its attempt, without any DNS.

A name that was asked for too early is unknown for as long as its absence is cached (30 s by CoreDNS's
default), so the API server is asked instead, which tells within moments that the pod has an address.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fray.errors import HeadUnknownError
from fray.kube.errors import ExpiredError, ServerError, ThrottledError, UnreachableError
from fray.kube.objects import Manifest
from fray.kube.resources import PODS
from fray.runtime.api.client import ApiClient
from fray.vocabulary import (
    LABEL_ATTEMPT,
    LABEL_COMPLETION_INDEX,
    LABEL_JOB_INDEX,
    LABEL_JOB_UID,
    LABEL_REPLICATED_JOB,
    REPLICATED_JOB,
)

__all__ = ["HeadPod", "await_head", "build_head_selector", "find_head", "has_ended"]

PAUSE_SECONDS: Final = 1.0
"""Before the pods are listed again, after an answer that failed or a watch that ended."""
PASSING: Final = (ExpiredError, ServerError, ThrottledError, UnreachableError)


@dataclass(frozen=True)
class HeadPod:
    """The pod that the head runs in: `uid` tells it from another one that has got its `address` later.

    It may be dialled before it is `ready`: its probe is asked only every so often.
    """

    uid: str
    address: str
    ready: bool


def build_head_selector(job_uid: str, attempt: int) -> str:
    """Return the labels of the pods that have been rank 0 of an attempt; those of workers lack some."""
    labels = {
        LABEL_JOB_UID: job_uid,
        LABEL_ATTEMPT: str(attempt),
        LABEL_REPLICATED_JOB: REPLICATED_JOB,
        LABEL_JOB_INDEX: "0",
        LABEL_COMPLETION_INDEX: "0",
    }
    return ",".join(f"{key}={value}" for key, value in labels.items())


def find_head(pods: Iterable[Manifest]) -> HeadPod | str:
    """Return the pod that runs the head, or why there is none yet; `pods` are those of the selector.

    Of several the newest counts: a host that was made anew has its predecessor beside it for a while.
    """
    living = [pod for pod in pods if _is_living(pod)]
    if not living:
        return "rank 0 has no pod that runs or is to run"
    pod = max(living, key=lambda each: (each["metadata"].get("creationTimestamp") or "", _uid(each)))
    status = pod.get("status") or {}
    if not (address := status.get("podIP")):
        return f"pod {pod['metadata'].get('name')} of rank 0 has no address yet: {status.get('phase')}"
    conditions = status.get("conditions") or []
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return HeadPod(_uid(pod), address, ready)


def has_ended(client: ApiClient, uid: str, *, job_uid: str, attempt: int) -> bool:
    """Return whether the pod that the head was in is gone, has ended or is to; False where nobody can tell.

    Raises `ForbiddenError` and other errors that stay.
    """
    selector = build_head_selector(job_uid, attempt)
    try:
        pages = client.list_pages(PODS, namespace=client.namespace, labels=selector)
        return not any(_uid(pod) == uid and _is_living(pod) for page in pages for pod in page.items)
    except PASSING:
        return False


def await_head(
    client: ApiClient,
    *,
    job_uid: str,
    attempt: int,
    seconds: float,
    pause: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> HeadPod:
    """Wait until the head of an attempt has an address, and return its pod.

    Raises `HeadUnknownError` after `seconds` (some more where the server is silent) with what was known last,
    and `ForbiddenError` and other errors that stay at once.
    """
    deadline, selector = clock() + seconds, build_head_selector(job_uid, attempt)
    known = "the API server was not asked"
    while (left := deadline - clock()) > 0:
        try:
            for found in _follow(client, selector, seconds=left):
                if isinstance(found, HeadPod):
                    return found
                known = found
        except PASSING as error:
            known = error.message
        # A watch may end at once, too: the server isn't asked without a pause.
        pause(max(0.0, min(PAUSE_SECONDS, deadline - clock())))
    raise HeadUnknownError(job_uid, attempt, seconds, known)


def _follow(client: ApiClient, labels: str, *, seconds: float) -> Iterator[HeadPod | str]:
    """Yield what is known of the head, first from a list and then after each change, until a watch ends."""
    pods: dict[str, Manifest] = {}
    since = ""
    for page in client.list_pages(PODS, namespace=client.namespace, labels=labels):
        pods |= {_uid(pod): pod for pod in page.items}
        since = page.resource_version
    yield find_head(pods.values())
    for event in client.watch(
        PODS, namespace=client.namespace, labels=labels, resource_version=since, seconds=seconds
    ):
        if event.type == "DELETED":
            pods.pop(_uid(event.object), None)
        elif event.type != "BOOKMARK":
            pods[_uid(event.object)] = event.object
        yield find_head(pods.values())


def _uid(pod: Manifest) -> str:
    return str(pod["metadata"].get("uid") or "")


def _is_living(pod: Manifest) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not ended and not pod["metadata"].get("deletionTimestamp")

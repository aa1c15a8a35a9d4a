"""How many workers a job asks for: more at once when there is more to do, fewer after a while with less.

What is wanted follows from demand alone (`Demand`); writing it is one change of the job's own scale.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from fray.kube.errors import ConflictError, NotFoundError, UnreachableError
from fray.kube.objects import Manifest
from fray.kube.resources import FRAYJOBS
from fray.runtime.api.client import ApiClient

__all__ = ["Demand", "get_replicas", "set_replicas"]

TRIES: Final = 5
"""Of a change of the scale that others get in the way of: each write of the job's status does."""


@dataclass(frozen=True)
class Demand:
    """How many workers there was work for lately.

    Kept are numbers that may still be the highest, each above all later ones, with the time until which there
    was that much work; that of the last one, which is now so, says since when.
    """

    numbers: tuple[tuple[float, int], ...] = ()

    def note(self, workers: int, *, now: float) -> Demand:
        """Return the demand from the moment on at which there is work for so many workers."""
        past = (*self.numbers[:-1], *((now, number) for _, number in self.numbers[-1:]))
        return Demand((*(each for each in past if each[1] > workers), (now, workers)))

    def derive_replicas(
        self, *, now: float, idle_seconds: float, least: int, most: int
    ) -> tuple[Demand, int]:
        """Return how many workers to ask for, with the demand that still matters.

        It is the highest number of the last `idle_seconds`, within `least` and `most`.
        """
        recent = tuple(each for each in self.numbers[:-1] if now - each[0] < idle_seconds) + self.numbers[-1:]
        highest = recent[0][1] if recent else 0
        return Demand(recent), max(least, min(highest, most))


def set_replicas(client: ApiClient, job: str, job_uid: str, replicas: int) -> bool:
    """Have a job ask for so many workers; return whether that was a change.

    Raises `NotFoundError` where the job is gone, also where another one has taken its name; `ConflictError`
    where others change it all the time; `ForbiddenError` without the right to its scale.
    """
    for _ in range(TRIES - 1):
        with suppress(ConflictError):
            return _set_once(client, job, job_uid, replicas)
    return _set_once(client, job, job_uid, replicas)


def get_replicas(client: ApiClient, job: str, job_uid: str) -> int:
    """Return how many workers a job asks for; raises `NotFoundError` as `set_replicas` does."""
    return _replicas_of(_get_scale(client, job, job_uid))


def _get_scale(client: ApiClient, job: str, job_uid: str) -> Manifest:
    scale = client.get(FRAYJOBS, job, namespace=client.namespace, subresource="scale")
    if (scale.get("metadata") or {}).get("uid") != job_uid:
        raise NotFoundError(f"GET {job}/scale", 404, "NotFound", f"job {job} is another one now")
    return scale


def _replicas_of(scale: Manifest) -> int:
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int):
        raise UnreachableError("GET scale", 0, "no number", f"replicas is {replicas!r}")
    return replicas


def _set_once(client: ApiClient, job: str, job_uid: str, replicas: int) -> bool:
    scale = _get_scale(client, job, job_uid)
    metadata = scale["metadata"]
    if _replicas_of(scale) == replicas:
        return False
    # Of this version only: another job may take the name before the request.
    changes = {
        "metadata": {"resourceVersion": metadata["resourceVersion"]},
        "spec": {"replicas": replicas},
    }
    client.patch(FRAYJOBS, job, changes, namespace=client.namespace, subresource="scale")
    return True
